"""Exported models: what their signatures give, alone in a process; layout, warm-up, fine-tuning, refusals.

Covers: serving/exports.py, serving/parts.py, serving/signatures.py, serving/warmup.py.
"""

import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from albert_tf import UserError, load_predictor, load_pretrained, save_pretrained
from albert_tf.core.flags import parse
from albert_tf.export import ExportSettings, export_model
from albert_tf.model import heads
from albert_tf.model.config import MULTI_LABEL
from albert_tf.serve import ServeSettings, export_again
from albert_tf.serving import warmup
from albert_tf.serving.signatures import TOKENS
from albert_tf.tasks.classification.text_pairs import PairSettings, TextExample, make_pair_features
from albert_tf.tasks.race.passages import RaceQuestion, RaceSettings, make_race_features
from albert_tf.text.tokenizer import Tokenizer
from tests.formats.test_pretrained import files_at_most
from tests.helpers import TINY, train_spm

LENGTH = 29  # positions of the models
CONFIG = TINY.replace(
    max_position_embeddings=LENGTH,
    num_hidden_layers=1,  # building graphs is what takes the time here
    initializer_range=0.3,  # so that outputs differ from text to text
    hidden_dropout_prob=0.1,
)
SENTENCES = ["the cat sat on a mat, late.", "a dog ran to the old house (1999), it was cold - why?"]
WORDS = " ".join(SENTENCES).split()
LABELS = {
    "pairs": ("yes", "no", "perhaps"),
    "score": ("similarity",),
    "labels": ("colour", "size", "mood", "name"),
    "tags": ("O", "B-A", "I-A", "B-B", "I-B"),
}
CLASSES = {
    "pretrained": heads.AlbertForPreTraining,
    "pairs": heads.AlbertForSequenceClassification,
    "score": heads.AlbertForSequenceClassification,
    "labels": heads.AlbertForSequenceClassification,
    "tags": heads.AlbertForTokenClassification,
    "choices": heads.AlbertForMultipleChoice,
    "span": heads.AlbertForSpan,
    "span_or_none": heads.AlbertForSpanOrNone,
}
SQUAD = {"doc_stride": 5, "max_query_length": 7, "max_answer_length": 4, "n_best_size": 6}
TASKS = {
    "pretrained": {},
    "pairs": {"max_seq_length": 13},
    "score": {},
    "labels": {
        "max_seq_length": 13,
        "thresholds": {"size": 0.4, "colour": 0.6, "mood": 0.5, "name": 0.55},
    },
    "tags": {"max_seq_length": 9, "doc_stride": 3, "word_separator": "space"},
    "choices": {"max_seq_length": 19, "max_qa_length": 6},
    "span": {"max_seq_length": 23, **SQUAD},
    "span_or_none": {"max_seq_length": 23, **SQUAD, "null_threshold": 50.0},
}


@pytest.fixture(scope="module")
def spm(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("spm") / "spiece.model"
    return train_spm(path, SENTENCES * 9, vocab_size=60, hard_vocab_limit=False)


@pytest.fixture(scope="module")
def tokenizer(spm) -> Tokenizer:
    return Tokenizer.from_file(spm)


@pytest.fixture(scope="module")
def sources(spm, tokenizer, tmp_path_factory):
    """A function that gives the folder of a model of a kind."""
    folder = tmp_path_factory.mktemp("models")

    @functools.cache
    def source(kind: str) -> str:
        config = CONFIG.replace(vocab_size=tokenizer.vocab_size)
        if kind in LABELS:
            is_multi_label = kind == "labels"
            config = config.with_labels(LABELS[kind], kind, is_multi_label=is_multi_label)
        model = CLASSES[kind](config, seed=5)
        if kind in ("pairs", "labels"):
            # So that different texts get different labels.
            features = pair_features(tokenizer, random_texts(1, 40), random_texts(2, 40), 13)
            model.head.output_bias.assign(-tf.reduce_mean(model(features)["logits"], axis=0))
        path = str(folder / kind)
        save_pretrained(model, path, spm_model_file=spm, task=TASKS[kind])
        return path

    return source


@pytest.fixture(scope="module")
def exported(sources, tmp_path_factory):
    """A function that gives the version's folder of an exported model of a kind; change nothing in it."""
    folder = tmp_path_factory.mktemp("exported")

    @functools.cache
    def export(kind: str) -> pathlib.Path:
        return pathlib.Path(export_model(sources(kind), str(folder / kind)))

    return export


@pytest.fixture(scope="module")
def served(exported):
    """A function that gives the loaded export of a kind."""
    return functools.cache(lambda kind: tf.saved_model.load(str(exported(kind))))


def run(command: list[str], **options) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def random_texts(seed: int, number: int, most: int = 12) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(0, most))) for _ in range(number)]


def random_ids(batch: int, length: int, vocab_size: int) -> dict[str, tf.Tensor]:
    rng = np.random.default_rng(batch)
    mask = np.arange(length)[None] < rng.integers(1, length + 1, [batch, 1])
    ids = {
        "input_ids": rng.integers(0, vocab_size, mask.shape) * mask,
        "input_mask": mask,
        "segment_ids": rng.integers(0, 2, mask.shape),
    }
    return {name: tf.constant(values, tf.int32) for name, values in ids.items()}


def whole(table) -> dict[str, np.ndarray]:
    """A table of features as one batch."""
    length = int(table.lengths.max())
    return table.batch(np.arange(len(table)), length, ["input_ids", "segment_ids"])


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)


# --- Signatures ---


def test_tokens_are_the_encoder_at_any_batch_and_length(served, sources, tokenizer):
    encoder = load_pretrained(sources("pairs")).encoder
    tokens = served("pairs").signatures["tokens"]
    for batch, length in ((1, 1), (3, 7), (2, LENGTH)):
        features = random_ids(batch, length, tokenizer.vocab_size)
        outputs, expected = tokens(**features), encoder(features)
        assert outputs.keys() == {"sequence_output", "pooled_output"}
        for name, array in outputs.items():
            assert_close(array, expected[name])


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"length": LENGTH + 1}, f"longer than the {LENGTH} positions"),
        ({"input_ids": 999}, "input_ids must be from 0 to"),
        ({"input_ids": -1}, "input_ids must be from 0 to"),
        ({"segment_ids": 2}, "segment_ids must be from 0 to 1"),
        ({"input_mask": 1}, "input_mask must have the shape of input_ids"),
    ],
    ids=str,
)
def test_wrong_token_inputs_are_rejected(served, tokenizer, changes, message):
    features = random_ids(2, changes.get("length", 9), tokenizer.vocab_size)
    for name, value in changes.items() - {("length", LENGTH + 1)}:
        shape = [2, 1] if name == "input_mask" else [2, 9]  # a mask would be broadcast
        features[name] = tf.fill(shape, value)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        served("pairs").signatures["tokens"](**features)


def pair_features(tokenizer, texts_a, texts_b, length):
    pairs = zip(texts_a, texts_b, strict=True)
    examples = [TextExample(str(row), *pair) for row, pair in enumerate(pairs)]
    return whole(make_pair_features(PairSettings(tokenizer, length), examples))


def test_pairs_of_texts_are_classified(served, sources, tokenizer):
    texts_a, texts_b = random_texts(1, 40), random_texts(2, 40)
    features = pair_features(tokenizer, texts_a, texts_b, TASKS["pairs"]["max_seq_length"])
    assert features["input_ids"].shape[1] == TASKS["pairs"]["max_seq_length"]  # some are cut
    logits = load_pretrained(sources("pairs"))(features)["logits"].numpy()
    classify = served("pairs").signatures["serving_default"]
    outputs = classify(text_a=tf.constant(texts_a), text_b=tf.constant(texts_b))
    assert_close(outputs["logits"], logits)
    assert_close(outputs["probabilities"], tf.nn.softmax(logits))
    expected = [LABELS["pairs"][index] for index in logits.argmax(axis=-1)]
    assert len(set(expected)) > 1
    assert [label.decode() for label in outputs["label"].numpy()] == expected
    one = classify(text_a=tf.constant(texts_a[:1]), text_b=tf.constant(texts_b[:1]))
    assert_close(one["logits"], logits[:1])

    alone = classify(text_a=tf.constant(texts_a), text_b=tf.fill([len(texts_a)], ""))
    outputs = served("pairs").signatures["classify"](texts=tf.constant(texts_a))
    assert outputs.keys() == alone.keys()
    assert_close(outputs["logits"], alone["logits"])


def test_several_labels_are_those_that_reach_their_thresholds(served, sources, tokenizer):
    texts_a, texts_b = random_texts(1, 40), random_texts(2, 40)
    features = pair_features(tokenizer, texts_a, texts_b, TASKS["labels"]["max_seq_length"])
    logits = load_pretrained(sources("labels"))(features)["logits"].numpy()
    classify = served("labels").signatures["serving_default"]
    outputs = classify(text_a=tf.constant(texts_a), text_b=tf.constant(texts_b))
    assert outputs.keys() == {"logits", "probabilities", "labels"}
    assert_close(outputs["logits"], logits)
    probabilities = 1 / (1 + np.exp(-logits))
    assert_close(outputs["probabilities"], probabilities)
    reached = probabilities >= np.array([0.6, 0.4, 0.5, 0.55])
    assert 0 < reached.mean() < 1 and len(set(map(tuple, reached))) > 2
    names = np.where(reached, LABELS["labels"], "")
    found = [[name.decode() for name in row] for row in outputs["labels"].numpy()]
    assert found == names.tolist()
    pairs = ["\t".join(pair) for pair in zip(texts_a, texts_b, strict=True)]
    answers = load_predictor(sources("labels")).predict(pairs)
    assert [answer["labels"] for answer in answers] == [list(filter(None, row)) for row in found]


def test_without_thresholds_a_label_needs_a_half(spm, tokenizer, tmp_path):
    config = CONFIG.replace(vocab_size=tokenizer.vocab_size, foreign={"problem_type": MULTI_LABEL})
    model = heads.AlbertForSequenceClassification(config, seed=5)  # as transformers writes it
    model.head.output_bias.assign([1.0, -1.0])
    save_pretrained(model, str(tmp_path / "model"), spm_model_file=spm)
    path = export_model(str(tmp_path / "model"), str(tmp_path / "out"), warmup=False)
    (answer,) = load_predictor(str(tmp_path / "model")).predict(["the cat"])
    outputs = tf.saved_model.load(path).signatures["classify"](texts=tf.constant(["the cat"]))
    probabilities = outputs["probabilities"].numpy()[0]
    expected = [f"LABEL_{index}" for index in np.flatnonzero(probabilities >= 0.5)]
    assert answer["labels"] == [name.decode() for name in outputs["labels"].numpy()[0] if name]
    assert answer["labels"] == expected and abs(probabilities.sum() - 1) > 0.01


def test_a_regression_has_a_score(served, sources, tokenizer):
    texts_a, texts_b = random_texts(3, 5), random_texts(4, 5)
    features = pair_features(tokenizer, texts_a, texts_b, LENGTH)
    expected = load_pretrained(sources("score"))(features)["logits"][:, 0]
    classify = served("score").signatures["serving_default"]
    outputs = classify(text_a=tf.constant(texts_a), text_b=tf.constant(texts_b))
    assert outputs.keys() == {"score"}
    assert_close(outputs["score"], expected)


@pytest.mark.parametrize("num_options", [1, 3, 4])
def test_options_are_chosen_from(served, sources, tokenizer, num_options):
    contexts, questions = random_texts(5, 7), ["why _ ?", "a _ , the _ .", *random_texts(6, 5)]
    options = np.array(random_texts(7, 7 * 4, 4)).reshape(7, 4)
    settings = RaceSettings(tokenizer, **TASKS["choices"])
    rows = zip(contexts, questions, options, strict=True)
    features = make_race_features(
        settings, [RaceQuestion("", "", *row[:2], tuple(row[2]), None, "", 0) for row in rows]
    )
    features = {name: array[:, :num_options] for name, array in whole(features).items()}
    logits = load_pretrained(sources("choices"))(features)["logits"].numpy()
    outputs = served("choices").signatures["serving_default"](
        context=tf.constant(contexts),
        question=tf.constant(questions),
        options=tf.constant(options[:, :num_options]),
    )
    assert_close(outputs["logits"], logits)
    assert_close(outputs["probabilities"], tf.nn.softmax(logits))
    assert outputs["answer"].numpy().tolist() == logits.argmax(axis=-1).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["span", "span_or_none"])
def test_questions_are_answered_in_characters_of_the_context(served, kind):
    contexts = [" ".join(random_texts(seed, 3)) + " Café" for seed in range(9)]
    questions = random_texts(8, 9)
    outputs = served(kind).signatures["serving_default"](
        question=tf.constant(questions), context=tf.constant(contexts)
    )
    rows = zip(contexts, *(outputs[name].numpy() for name in ("start", "end", "text")), strict=True)
    for context, start, end, text in rows:
        assert context[start:end] == text.decode()
    assert any(outputs["text"].numpy())
    assert (kind == "span_or_none") == ("null_odds" in outputs)


def test_the_hub_modules_signatures(served, sources, tokenizer):
    model, signatures = load_pretrained(sources("pretrained")), served("pretrained").signatures
    features = random_ids(3, 11, tokenizer.vocab_size)
    positions = tf.constant([[0, 10], [5, 5], [1, 2]])
    expected = model({**features, "masked_lm_positions": positions})
    mlm = signatures["mlm"](**features, mlm_positions=positions)
    assert mlm.keys() == {"sequence_output", "pooled_output", "mlm_logits"}
    assert_close(mlm["mlm_logits"], expected["masked_lm_logits"])
    sop = signatures["sop"](**features)
    assert_close(sop["pooled_output"], expected["pooled_output"])
    assert_close(sop["sop_logits"], expected["sentence_order_logits"])
    assert_close(sop["sop_log_probs"], tf.nn.log_softmax(expected["sentence_order_logits"]))


def test_texts_are_embedded(served, sources, tokenizer):
    texts = ["the cat sat", "the dog", "a mat, " * 40]
    model, outputs = (
        load_pretrained(sources("pretrained")),
        served("pretrained").signatures["embed"](texts=tf.constant(texts)),
    )
    for row, text in enumerate(texts):
        ids = [2, *tokenizer.encode(text)[: LENGTH - 2], 3]
        expected = model({"input_ids": tf.constant([ids])})
        assert_close(outputs["pooled_output"][row], expected["pooled_output"][0])
        mean = tf.reduce_mean(expected["sequence_output"][0], axis=0)
        assert_close(outputs["mean_embedding"][row], mean)


def test_masks_are_filled(served, sources, tokenizer):
    model = load_pretrained(sources("pretrained"))
    outputs = served("pretrained").signatures["fill_mask"](
        texts=tf.constant(["the [MASK] sat on [MASK].", "a [MASK]", "no mask"])
    )
    assert outputs["tokens"].shape == outputs["probabilities"].shape == [3, 2, 5]
    ids = [2, *tokenizer.encode("a"), 4, 3]
    inputs = {"input_ids": tf.constant([ids]), "masked_lm_positions": tf.constant([[len(ids) - 2]])}
    probabilities = tf.nn.softmax(model(inputs)["masked_lm_logits"])[0, 0].numpy()
    best = probabilities.argsort()[::-1][:5]
    pieces = [piece.decode() for piece in outputs["tokens"][1, 0].numpy()]
    assert pieces == [tokenizer.id_to_token(id) for id in best]
    assert_close(outputs["probabilities"][1, 0], probabilities[best])
    assert not np.any(outputs["probabilities"][1, 1])
    assert not np.any(outputs["probabilities"][2])
    assert set(outputs["tokens"][2].numpy().ravel()) == {b""}


def test_the_order_of_two_texts(served, sources, tokenizer):
    texts_a, texts_b = random_texts(1, 4), random_texts(2, 4)
    features = pair_features(tokenizer, texts_a, texts_b, LENGTH)
    logits = load_pretrained(sources("pretrained"))(features)["sentence_order_logits"]
    outputs = served("pretrained").signatures["sentence_order"](
        text_a=tf.constant(texts_a), text_b=tf.constant(texts_b)
    )
    found = tf.stack([outputs["in_order"], outputs["swapped"]], axis=1)
    assert_close(found, tf.nn.softmax(logits))


# --- What is written ---

ALONE = """
import json, sys
import numpy as np
for name in ("albert_tf", "tf_keras", "sentencepiece", "official"):
    sys.modules[name] = None  # importing it fails
import tensorflow as tf
import tensorflow_text
folder, requests = sys.argv[1:]
model = tf.saved_model.load(folder)
for name, columns in json.loads(requests).items():
    outputs = model.signatures[name](**{key: tf.constant(value) for key, value in columns.items()})
    values = {key: np.asarray(value.numpy()).tolist() for key, value in outputs.items()}
    print(json.dumps({"signature": name, **values}, default=bytes.decode))
"""


@pytest.mark.slow
def test_an_export_is_one_folder_that_needs_only_tensorflow(exported, served, tmp_path):
    shutil.copytree(exported("pairs"), tmp_path / "moved")
    columns = {"text_a": ["the cat", "a dog ran " * 9], "text_b": ["", "why?"]}
    ids = {name: [[1, 1, 1]] for name in TOKENS}
    requests = {"serving_default": columns, "tokens": ids, "tokenization_info": {}}
    command = [sys.executable, "-c", ALONE, str(tmp_path / "moved"), json.dumps(requests)]
    others = {"TF_USE_LEGACY_KERAS": "0"}  # tensorflow_text imports TensorFlow's own Keras
    done = run(command, cwd=tmp_path, env={**os.environ, **others})
    assert done.returncode == 0, done.stderr
    pairs, tokens, info = map(json.loads, done.stdout.splitlines())
    expected = served("pairs").signatures["serving_default"](
        **{name: tf.constant(texts) for name, texts in columns.items()}
    )
    assert_close(pairs["logits"], expected["logits"])
    assert np.shape(tokens["sequence_output"]) == (1, 3, CONFIG.hidden_size)
    assert info["vocab_file"] == str(tmp_path / "moved/assets/spiece.model")
    assert info["do_lower_case"] is True


def test_variables_have_their_released_names(exported, served, sources):
    expected = load_pretrained(sources("span_or_none")).named_variables()
    weights = served("span_or_none").weights
    assert weights.keys() == expected.keys()
    for name, variable in expected.items():
        np.testing.assert_array_equal(weights[name], variable, err_msg=name)
    prefix = str(exported("span_or_none") / "variables/variables")
    stored = {key.split("/.ATTRIBUTES")[0] for key, _ in tf.train.list_variables(prefix)}
    names = {"weights/" + name.replace("/", ".S") for name in expected}
    assert stored == names | {"_CHECKPOINTABLE_OBJECT_GRAPH", "save_counter"}


def test_an_export_has_vocabulary_and_configuration(exported, spm):
    assets = exported("span_or_none") / "assets"
    assert (assets / "spiece.model").read_bytes() == pathlib.Path(spm).read_bytes()
    config = json.loads((assets / "albert_config.json").read_text())
    assert config["num_attention_heads"] == CONFIG.num_attention_heads
    about = json.loads((assets / "export.json").read_text())
    assert about["task"] == TASKS["span_or_none"]
    assert about["model_class"] == "AlbertForSpanOrNone"
    assert about["without_values"] == []


@functools.cache
def prediction_log_class():
    """PredictionLog of tensorflow-serving-api, made of its published fields."""
    file = descriptor_pb2.FileDescriptorProto(name="log.proto", package="t", syntax="proto3")
    file.dependency.append("tensorflow/core/framework/tensor.proto")
    messages = {
        "Spec": {"name": (1, ""), "signature_name": (3, "")},
        "Request": {"model_spec": (1, ".t.Spec"), "inputs": (2, ".t.Request.InputsEntry")},
        "Predict": {"request": (1, ".t.Request")},
        "Log": {"predict_log": (6, ".t.Predict")},
    }
    entry = {"key": (1, ""), "value": (2, ".tensorflow.TensorProto")}

    def add(message, fields):
        for name, (number, type_name) in fields.items():
            kind = {"type": 11, "type_name": type_name} if type_name else {"type": 9}
            label = 3 if name == "inputs" else 1
            message.field.add(name=name, number=number, label=label, **kind)

    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        add(message, fields)
        if name == "Request":
            nested = message.nested_type.add(name="InputsEntry")
            nested.options.map_entry = True
            add(nested, entry)
    pool = descriptor_pool.Default()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Log"))


@pytest.mark.parametrize("kind", ["pretrained", "choices", "span_or_none", "tags"])
def test_warm_up_requests_can_be_answered(exported, served, kind):
    path = exported(kind) / "assets.extra/tf_serving_warmup_requests"
    asked = {}
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        request = prediction_log_class().FromString(record).predict_log.request
        assert request.model_spec.name == kind
        name = request.model_spec.signature_name
        inputs = {key: tf.constant(tf.make_ndarray(value)) for key, value in request.inputs.items()}
        served(kind).signatures[name](**inputs)
        shapes = asked.setdefault(name, set())
        shapes.update(tuple(tensor.shape) for key, tensor in inputs.items() if key == "input_ids")
    assert asked.keys() == served(kind).signatures.keys()
    length = TASKS[kind].get("max_seq_length", LENGTH)
    assert asked["tokens"] == {(1, 4), (8, 4), (1, length), (8, length)}


def test_the_longest_warm_up_text_fills_the_model(tokenizer):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="texts")])
    def function(texts):
        return {"same": texts}

    *_, last = warmup.requests(function, LENGTH)
    assert last["texts"].shape == (8,)
    assert len(tokenizer.encode(last["texts"][0].decode())) >= LENGTH


def test_bfloat16_is_near(sources, tmp_path, served):
    path = export_model(sources("pairs"), str(tmp_path), dtype="bfloat16", warmup=False)
    assert not (tmp_path / "1/assets.extra").exists()
    texts = {"text_a": tf.constant(random_texts(1, 9)), "text_b": tf.constant(random_texts(2, 9))}
    model = tf.saved_model.load(path)
    found = model.signatures["serving_default"](**texts)["logits"]
    expected = served("pairs").signatures["serving_default"](**texts)["logits"]
    assert found.dtype == tf.float32
    assert {variable.dtype for variable in model.trainable_variables} == {tf.float32}
    assert 1e-5 < np.max(np.abs(found - expected)) < bfloat16_bound(CONFIG)


def bfloat16_bound(config) -> float:
    """The largest difference between the logits of a new classifier in bfloat16 and in float32.

    A rounding has a relative error of at most u = 2^-8, evenly distributed over an interval whose relative width
    depends on the leading digits: u sqrt(1 / 3) sqrt(3 / (8 ln 2)) = .42 u in the root mean square. Errors are
    independent, and neither products with random weights nor LayerNorm make them relatively larger, so k roundings in
    a row are a random walk: sqrt(k) times as large. A logit is a sum of D outputs of a tanh, at most 1, times weights
    of a known deviation. One of a few dozen logits is farther than 4 standard deviations away in one of 500 models.
    """
    dense = 3  # kernel, product, sum with the bias
    attention = dense + 2 + dense  # between the two: probabilities, context
    feed_forward = 1 + dense + 1 + dense  # first the input, in between the activation
    projection = pooler = 1 + dense
    layers = config.num_hidden_layers * (attention + feed_forward)
    roundings = projection + layers + pooler + 1  # the last one is that of tanh
    error = 2**-8 * np.sqrt(1 / 3 * 3 / (8 * np.log(2)) * roundings)
    return 4 * error * config.initializer_range * np.sqrt(config.hidden_size)


def test_a_session_runs_it_as_tensorflow_serving_does(exported, served):
    texts = {"question": ["why?", "a cat"], "context": ["it was late. the cat sat", "dog"]}
    path = str(exported("span"))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        graph = tf.compat.v1.saved_model.load(session, ["serve"], path).signature_def
        signature = graph["serving_default"]
        feeds = {signature.inputs[name].name: values for name, values in texts.items()}
        names = {name: info.name for name, info in signature.outputs.items()}
        found = session.run(names, feeds)
    columns = {name: tf.constant(values) for name, values in texts.items()}
    expected = served("span").signatures["serving_default"](**columns)
    assert found["text"].tolist() == expected["text"].numpy().tolist()
    assert_close(found["score"], expected["score"])


# --- Fine-tuning what was exported ---


def test_a_loaded_export_can_be_fine_tuned(exported, tokenizer):
    model = tf.saved_model.load(str(exported("pairs")))
    features = random_ids(8, 11, tokenizer.vocab_size)
    labels = tf.constant([0, 1, 2, 0, 1, 2, 0, 1])

    def loss(training):
        logits = model(features, training=training)["logits"]
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))

    assert float(loss(True)) != float(loss(True))  # dropout
    assert float(loss(False)) == float(loss(False))
    before = float(loss(False))
    for _ in range(5):
        with tf.GradientTape() as tape:
            value = loss(True)
        variables = model.trainable_variables
        gradients = tape.gradient(value, variables)
        assert all(gradient is not None for gradient in gradients)
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.assign_sub(0.05 * tf.convert_to_tensor(gradient))
    assert float(loss(False)) < before - 0.1
    texts = {"text_a": tf.constant(["the cat"]), "text_b": tf.constant([""])}
    fresh = tf.saved_model.load(str(exported("pairs")))
    tuned, old = (m.signatures["serving_default"](**texts)["logits"] for m in (model, fresh))
    assert np.max(np.abs(tuned - old)) > 0.01  # signatures use the same variables


def test_every_loaded_export_can_be_called(served, tokenizer):
    features = random_ids(2, 9, tokenizer.vocab_size)
    several = {name: tf.stack([value] * 3, axis=1) for name, value in features.items()}
    p_mask = {"p_mask": tf.zeros([2, 9], tf.int32)}
    starts = {"start_positions": tf.ones([2, 1], tf.int32)}
    for training in (False, True):
        assert served("pretrained")(features, training=training)["pooled_output"].shape == [2, 20]
        assert served("score")(features, training=training)["logits"].shape == [2, 1]
        assert served("choices")(several, training=training)["logits"].shape == [2, 3]
        assert served("span")(features, training=training)["end_logits"].shape == [2, 9]
        others = {**p_mask, **(starts if training else {})}
        outputs = served("span_or_none")({**features, **others}, training=training)
        assert outputs["start_log_probs"].shape == [2, 9]
        assert ("end_log_probs" in outputs) == training


# --- What is rejected ---


def test_an_encoder_alone_has_no_heads_signatures(spm, tokenizer, tmp_path):
    config = CONFIG.replace(vocab_size=tokenizer.vocab_size)
    model = heads.AlbertForPreTraining(config)
    model.named_variables = model.encoder.named_variables
    save_pretrained(model, str(tmp_path / "model"), spm_model_file=spm)
    path = export_model(str(tmp_path / "model"), str(tmp_path / "out"), warmup=False)
    served = tf.saved_model.load(path)
    names = {"embed", "serving_default", "tokenization_info", "tokens"}
    assert set(served.signatures) == names
    outputs = served({name: tf.ones([1, 3], tf.int32) for name in TOKENS}, training=False)
    assert outputs.keys() == {"sequence_output", "pooled_output"}


def test_a_pooler_without_values_is_left_out(served):
    """The Hugging Face layout of a SQuAD model has none."""
    outputs = served("span").signatures["tokens"](
        **{name: tf.ones([1, 3], tf.int32) for name in TOKENS}
    )
    assert outputs.keys() == {"sequence_output"}
    assert "pooled_output" not in served("tags").signatures["tokens"].structured_outputs


def test_a_task_without_its_head_is_rejected(spm, tokenizer, tmp_path):
    config = CONFIG.replace(vocab_size=tokenizer.vocab_size)
    model = heads.AlbertForMultipleChoice(config)
    model.named_variables = model.encoder.named_variables
    save_pretrained(model, str(tmp_path / "model"), spm_model_file=spm)
    with pytest.raises(UserError, match="AlbertForMultipleChoice .* has no values for its head"):
        export_model(str(tmp_path / "model"), str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_version_that_is_there_is_rejected_or_replaced(sources, tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "7/old").write_text("old")
    with pytest.raises(UserError, match="7: is there already; give another --version"):
        export_model(sources("score"), str(tmp_path), version=7)
    assert (tmp_path / "7/old").read_text() == "old"
    export_model(sources("score"), str(tmp_path), version=7, overwrite=True, warmup=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["7"]
    assert (tmp_path / "7/saved_model.pb").exists() and not (tmp_path / "7/old").exists()


def test_nothing_is_left_half_written(sources, tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1/old").write_text("old")
    model = sources("score")  # written before files are limited
    with files_at_most(1000), pytest.raises(UserError, match="1: cannot be written"):
        export_model(model, str(tmp_path), overwrite=True)
    assert [path.name for path in tmp_path.rglob("*")] == ["1", "old"]


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--format=tflite", "--dtype=bfloat16"], "--dtype=bfloat16 contradicts"),
        (["--format=tflite", "--version=2"], "--version=2 contradicts --format=tflite"),
        (["--quantization=dynamic_int8"], "contradicts --format=saved_model"),
        (["--format=tflite", "--calibration_file=x.txt"], "contradicts --format=tflite"),
        (["--format=onnx", "--dtype=bfloat16"], "--dtype=bfloat16 contradicts --format=onnx"),
        (["--max_seq_length=3"], "--max_seq_length must be at least 4, got 3"),
        (["--version=0"], "--version must be at least 1, got 0"),
    ],
    ids=str,
)
def test_wrong_flags_are_named(flags, message):
    with pytest.raises(UserError, match=message):
        parse([ExportSettings], ["export.py", "--model=docs", "--output_dir=o", *flags])


def test_a_length_above_the_models_is_rejected(sources, tmp_path):
    with pytest.raises(UserError, match=f"--max_seq_length={LENGTH + 1} is above"):
        export_model(sources("pairs"), str(tmp_path / "out"), max_seq_length=LENGTH + 1)


# --- Depth ---

DEPTH = {"num_hidden_layers": 5, "patience": 2, "score_tolerance": 0.2}


@pytest.mark.parametrize("kind", ["pairs", "score", "labels"])
def test_texts_leave_an_export_where_they_leave_the_predictor(sources, tmp_path, kind):
    path = export_model(sources(kind), str(tmp_path / kind), warmup=False, **DEPTH)
    signature = tf.saved_model.load(path).signatures["serving_default"]
    predictor = load_predictor(sources(kind), batch_size=7, **DEPTH)
    inputs = {"text_a": random_texts(1, 20), "text_b": random_texts(2, 20)}
    items = ["\t".join(pair) for pair in zip(*inputs.values(), strict=True)]
    outputs = {name: value.numpy() for name, value in signature(**inputs).items()}
    answers = predictor.predict(items)
    numbers = [answer["num_layers"] for answer in answers]
    assert outputs["num_layers"].tolist() == numbers and 2 <= min(numbers) < 5
    if kind == "score":
        assert_close(outputs["score"], [answer["similarity"] for answer in answers])
    else:
        found = [list(answer["probabilities"].values()) for answer in answers]
        assert_close(outputs["probabilities"], found)


def test_an_export_is_served_with_another_depth(exported, sources, tmp_path):
    settings = ServeSettings(folder=str(exported("pairs").parent), **DEPTH)
    again = export_again(settings, str(tmp_path))
    assert again == str(tmp_path / "pairs")  # the model keeps its name
    text = random_texts(1, 6)
    outputs = tf.saved_model.load(f"{again}/1").signatures["classify"](texts=tf.constant(text))
    answers = load_predictor(sources("pairs"), **DEPTH).predict(text)
    assert outputs["num_layers"].numpy().tolist() == [each["num_layers"] for each in answers]
    found = [list(answer["probabilities"].values()) for answer in answers]
    assert_close(outputs["probabilities"], found)


def test_what_an_export_was_made_with_stays_when_it_is_read_or_served(sources, tmp_path):
    path = export_model(
        sources("pairs"), str(tmp_path / "pairs"), warmup=False, dtype="bfloat16", **DEPTH
    )
    settings = ServeSettings(folder=str(tmp_path / "pairs"), num_hidden_layers=4)
    again = export_again(settings, str(tmp_path / "again"))
    about = json.loads(pathlib.Path(again, "1/assets/export.json").read_text())
    assert (about["dtype"], about["patience"], about["score_tolerance"]) == ("bfloat16", 2, 0.2)
    text = random_texts(1, 6)
    expected = load_predictor(sources("pairs"), **DEPTH).predict(text)
    assert load_predictor(path).predict(text) == expected
    outputs = tf.saved_model.load(path).signatures["classify"](texts=tf.constant(text))
    assert outputs["num_layers"].numpy().min() >= 2
    with pytest.raises(
        UserError, match="has exports in subfolders; give one of them, such as .*/1"
    ):
        load_predictor(tmp_path / "pairs")


@pytest.mark.parametrize("kind", ["span", "tags", "pretrained"])
def test_patience_is_rejected_where_each_token_has_an_answer(sources, tmp_path, kind):
    message = r"patience is for models .*; use num_hidden_layers$"
    with pytest.raises(UserError, match=message):
        export_model(sources(kind), str(tmp_path / "out"), patience=3)
    with pytest.raises(UserError, match=message):
        load_predictor(sources(kind), patience=3)
