"""Inference: latency and throughput by batch and length, of our export, of other libraries, and over HTTP.

Our export and transformers load the same model folder, and their outputs are compared. TF Model Garden's encoder has
the same sizes and random weights.
"""

import functools
import itertools
from collections.abc import Callable, Mapping

import numpy as np

from albert_tf.core import files
from albert_tf.core.workers import num_cores
from lab.benchmarks import measure, peers, serving
from lab.benchmarks.inputs import (
    EXPORT,
    MODEL,
    TEXT,
    export_path,
    model_path,
    text_path,
    vocabulary_path,
)
from lab.benchmarks.measure import BenchSettings, Measurement, Values

_GRID = {False: ((1, 8, 16), (32, 128, 512)), True: ((1, 8), (32, 128))}  # by --quick
_HTTP_BATCHES = "1,8,32"
_HTTP_LENGTH = 32
_SAMPLE = 4  # sequences whose outputs are compared


def answer(settings: BenchSettings, *, who: str) -> Values:
    """Times batches of every size.

    Returns:
      `cells`: by "batch x length", the values of `repeated` and `sequences_a_second`; `sample`: outputs for the same
      sequences, if the implementation loads the common model.
    """
    make_call = _MAKERS[who](settings)
    batches, lengths = _GRID[settings.quick]
    cells = {}
    # The smallest size comes first: it builds the graph, so larger sizes need no warm-up.
    for length, batch in itertools.product(lengths, batches):
        call = make_call(batch, length)
        repeats = {"least": 5} if batch * length <= 2048 else {"warm_up": 0, "least": 2}
        timing = measure.repeated(call, settings.seconds / 10, **repeats)
        rate = batch / timing["median"]
        cells[f"{batch}x{length}"] = {**timing, "sequences_a_second": rate}
    if who in ("ours", "transformers"):
        return {"cells": cells, "sample": np.asarray(make_call(_SAMPLE, 32)())[:, :8].tolist()}
    return {"cells": cells}


def random_ids(settings: BenchSettings, batch: int, length: int) -> dict[str, np.ndarray]:
    """Random sequences without padding, int32 [B, L]."""
    vocab_size = files.read_json(f"{model_path(settings)}/config.json")["vocab_size"]
    ids = np.random.default_rng(1).integers(5, vocab_size, (batch, length)).astype(np.int32)
    return {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": np.zeros_like(ids)}


def _ours(settings: BenchSettings, *, from_strings: bool = False) -> Callable:
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (its operations tokenize)

    model = tf.saved_model.load(f"{export_path(settings)}/1")
    function = model.signatures["classify" if from_strings else "tokens"]
    function.model = model  # keeps the variables alive
    output = "probabilities" if from_strings else "pooled_output"

    def make_call(batch: int, length: int):
        work = (settings, batch, length)
        inputs = {"texts": texts_of(*work)} if from_strings else random_ids(*work)
        tensors = {name: tf.constant(value) for name, value in inputs.items()}
        return lambda: function(**tensors)[output].numpy()

    return make_call


def texts_of(settings: BenchSettings, count: int, length: int) -> list[str]:
    """Texts of the corpus, each as long as fits into the given number of tokens."""
    from albert_tf import Tokenizer

    tokenizer = Tokenizer.from_file(vocabulary_path(settings))
    with open(text_path(settings), encoding="utf-8", errors="ignore") as file:
        words = itertools.cycle(
            [word for line in itertools.islice(file, 2000) for word in line.split()]
        )
    size_of = functools.cache(lambda word: len(tokenizer.encode(word)))
    texts = []
    for _ in range(count):
        text, size = [], 2  # [CLS] and [SEP]
        while (size := size + size_of(word := next(words))) <= length:
            text.append(word)
        texts.append(" ".join(text))
    return texts


def _transformers(settings: BenchSettings) -> Callable:
    import torch
    import transformers

    torch.set_num_threads(num_cores())
    model = transformers.AlbertModel.from_pretrained(model_path(settings)).eval()

    def make_call(batch: int, length: int):
        inputs = peers.transformers_inputs(random_ids(settings, batch, length))

        def call():
            with torch.inference_mode():
                return model(**inputs).pooler_output.numpy()

        return call

    return make_call


def _model_garden(settings: BenchSettings) -> Callable:
    import tensorflow as tf

    from albert_tf.formats import pretrained

    config = pretrained.read_weights(model_path(settings)).config
    encoder = peers.model_garden_encoder(config)
    spec = tf.TensorSpec([None, None], tf.int32)
    run = tf.function(
        lambda *ids: encoder(list(ids), training=False)["pooled_output"], input_signature=[spec] * 3
    )

    def make_call(batch: int, length: int):
        inputs = peers.model_garden_inputs(random_ids(settings, batch, length))
        tensors = [tf.constant(value) for value in inputs.values()]
        return lambda: run(*tensors).numpy()

    return make_call


def over_http(settings: BenchSettings) -> Values:
    """Times requests of one client to albert_tf.serve, with texts of up to 32 tokens.

    Returns:
      `batches`: by batch size, `statistics_of` the requests' seconds, and `texts_a_second`.
    """
    requests = serving.ServingSettings(
        model_dir=export_path(settings),
        input_file=text_path(settings),
        batch_sizes=_HTTP_BATCHES,
        seconds=max(1.0, settings.seconds / 4),
    )
    instances = [{"text_a": text, "text_b": ""} for text in texts_of(settings, 64, _HTTP_LENGTH)]
    batches = {}
    with serving.server(requests) as url:
        for batch in requests.sizes:
            seconds, elapsed = serving.measure(url, instances, batch, requests)
            rate = len(seconds) * batch / elapsed
            batches[str(batch)] = {**measure.statistics_of(seconds), "texts_a_second": rate}
    return {"batches": batches}


_MAKERS: Mapping[str, Callable[[BenchSettings], Callable]] = {
    "ours": _ours,
    "ours_strings": functools.partial(_ours, from_strings=True),
    "transformers": _transformers,
    "model_garden": _model_garden,
}
MEASUREMENTS = (
    *(
        Measurement(
            f"inference.{who}",
            functools.partial(answer, who=who),
            needs=peers.PEERS.get(who, ()),
            inputs=(TEXT, EXPORT if who.startswith("ours") else MODEL),
            in_quick=who in ("ours", "transformers"),
        )
        for who in _MAKERS
    ),
    Measurement("inference.http", over_http, inputs=(TEXT, EXPORT)),
)
