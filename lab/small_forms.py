r"""Compares the small ONNX forms of a model: bytes, scores, and cosines with its own vectors in float32.

    python -m lab.small_forms models/albert-minilm-l6 --data_dir=data --output_file=small_forms.json

A pretrained model or an embedder is scored as an embedder: on the test set of STS-B, by retrieval (which of the 1,000
second sentences of the most similar pairs belongs to the first one), and by a linear probe on SST-2. The output file
gets one more entry for each model. With --repetitions, texts per second of processor time are measured, too: with one
thread, batches of 32 texts of similar length, and repetitions that alternate between the forms.
"""

import csv
import dataclasses
import datetime
import functools
import json
import pathlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.core import files, flags
from albert_tf.core.settings import Settings, setting
from lab import machine, real_weights
from lab.made_texts import neighboring_words

FORMS: Mapping[str, Mapping[str, str | int]] = {
    "float32": {"quantization": "none"},
    "int8": {"quantization": "int8"},
    "int8_rows": {"quantization": "int8_rows"},
    "int4, blocks of 32": {"quantization": "int4", "block_size": 32},
    "int4, blocks of 128": {"quantization": "int4", "block_size": 128},
}
BATCH_SIZE = 32
NUM_RETRIEVED = 1000
NUM_TRAINED = 500  # texts of SST-2
NUM_TESTED = 872
NUM_ALONE = 64  # texts that are also embedded alone
LENGTHS = (3, 110)  # words of the texts for times
NUM_TIMED = 96


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmallFormsSettings(Settings):
    """The model, the data and what is measured."""

    model: str = setting("", "An embedder or a pretrained model.", required=True, input_path=True)
    name: str = setting("", "The name of the model in the results; by default that of its folder.")
    data_dir: str = setting("", "Folder with glue and text.", required=True, input_path=True)
    repetitions: int = setting(0, "Repetitions of the times; 0 measures none.", minimum=0)
    output_file: str = setting(
        "docs/results/data/small_forms.json", "JSON file that gets the results of this model."
    )


def batches_of(
    tokenizer, texts: Sequence[str], most: int, most_tokens: int = 0
) -> list[dict[str, np.ndarray]]:
    """Features of texts, the shortest first, in batches of similar length.

    Args:
      most: tokens of a text; longer ones are cut.
      most_tokens: of a batch with its padding; 0 for no bound besides `BATCH_SIZE` texts.
    """
    rows = [
        [tokenizer.cls_id, *ids[: most - 2], tokenizer.sep_id]
        for ids in tokenizer.encode_batch(list(texts))
    ]
    rows.sort(key=len)
    batches = []
    while rows:
        number = BATCH_SIZE
        while most_tokens and number > 1 and number * len(rows[:number][-1]) > most_tokens:
            number -= 1
        chosen = rows[:number]
        rows = rows[number:]
        length = max(len(row) for row in chosen)
        ids = np.full([len(chosen), length], tokenizer.pad_id)
        mask = np.zeros_like(ids)
        for index, row in enumerate(chosen):
            ids[index, : len(row)] = row
            mask[index, : len(row)] = 1
        batches.append({"input_ids": ids, "input_mask": mask, "segment_ids": 0 * ids})
    return batches


def retrieval(embed: Callable, data: real_weights.Pairs) -> float:
    """The mean reciprocal rank of the second sentence of similar pairs among all second sentences."""
    first, second, scores = data
    chosen = np.argsort(-scores, kind="stable")[:NUM_RETRIEVED]
    queries = _of_unit_length(embed([first[index] for index in chosen]))
    texts = _of_unit_length(embed([second[index] for index in chosen]))
    similarities = queries @ texts.T
    ranks = (similarities >= np.diag(similarities)[:, None]).sum(axis=1)
    return float(np.mean(1 / ranks))


def probe(embed: Callable, data_dir: str) -> float:
    """The accuracy on SST-2's development set of a ridge regression on vectors of 500 texts of its training set."""
    sets = []
    for name, number in (("train.tsv", NUM_TRAINED), ("dev.tsv", NUM_TESTED)):
        path = pathlib.Path(data_dir) / "glue" / "SST-2" / name
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1 : number + 1]
        signs = np.array([2 * int(label) - 1 for _, label in rows])
        vectors = _of_unit_length(embed([text for text, _ in rows]))
        sets.append((np.pad(vectors, ((0, 0), (0, 1)), constant_values=1), signs))
    (trained, signs), (tested, expected) = sets
    matrix = trained.T @ trained + np.eye(trained.shape[1])
    weights = np.linalg.solve(matrix, trained.T @ signs)
    return float(np.mean(np.sign(tested @ weights) == expected))


def _vectors_of(by_text: Mapping[str, np.ndarray], texts: Sequence[str]) -> np.ndarray:
    return np.stack([by_text[text] for text in texts])


def _of_unit_length(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def texts_for_times(data_dir: str) -> list[str]:
    """Texts of Wikipedia of 3 to 110 words."""
    path = sorted((pathlib.Path(data_dir) / "text" / "wikipedia").iterdir())[0]
    words = path.read_text(encoding="utf-8").split()
    return neighboring_words(words, NUM_TIMED, LENGTHS)


def times(
    predictors: Mapping[str, Any], texts: Sequence[str], repetitions: int
) -> dict[str, float]:
    """Texts per second of processor time, the median of the repetitions."""
    seconds: dict[str, list[float]] = {name: [] for name in predictors}
    first = next(iter(predictors.values()))
    batches = batches_of(first.tokenizer, texts, first.task_settings["max_seq_length"])
    for _ in range(repetitions):
        for name, predictor in predictors.items():
            predictor.compute(batches[0], threads=1)  # makes the session, fills the caches
            start = time.process_time()
            for batch in batches:
                predictor.compute(batch, threads=1)
            seconds[name].append(time.process_time() - start)
    return {name: round(len(texts) / float(np.median(each)), 1) for name, each in seconds.items()}


def main(settings: SmallFormsSettings) -> None:
    """Exports the model in every form, measures each, prints a line for each, and writes the results."""
    from albert_tf import load_predictor
    from albert_tf.export import export_model

    data = real_weights.read_data(settings.data_dir)["test"]
    texts = [*data[0], *data[1]]
    alone = texts[:: len(texts) // NUM_ALONE][:NUM_ALONE]
    forms: dict[str, dict] = {}
    predictors: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        expected = None
        for name, how in FORMS.items():
            path = export_model(settings.model, f"{folder}/{name}", format="onnx", **how)
            predictor = load_predictor(path)
            vectors = _of_unit_length(predictor.embed(texts))
            by_text = dict(zip(texts, vectors, strict=True))
            embed = functools.partial(_vectors_of, by_text)
            expected = vectors if expected is None else expected
            cosines = (vectors * expected).sum(axis=1)
            places = [texts.index(text) for text in alone]
            alone_vectors = np.concatenate([predictor.embed([text]) for text in alone])
            difference = _of_unit_length(alone_vectors) - vectors[places]
            scores = real_weights.scores(embed, {"test": data})
            forms[name] = {
                "megabytes": round(pathlib.Path(path).stat().st_size / 1e6, 2),
                "median_cosine": round(float(np.median(cosines)), 5),
                "least_cosine": round(float(cosines.min()), 5),
                "most_by_batch": float(f"{np.abs(difference).max():.1e}"),
                "sts_b_spearman": scores["test"],
                "retrieval_mrr": round(retrieval(embed, data), 4),
                "sst_2_probe_accuracy": round(probe(predictor.embed, settings.data_dir), 4),
            }
            predictors[name] = predictor
            print(name, forms[name], flush=True)
        if settings.repetitions:
            speeds = times(predictors, texts_for_times(settings.data_dir), settings.repetitions)
            for name, speed in speeds.items():
                forms[name]["texts_per_processor_second"] = speed
    about = {
        "processor": machine.processor_name(),
        "commit": machine.commit(".", short=True),
        "date": f"{datetime.date.today()}",
    }
    output = pathlib.Path(settings.output_file)
    results = json.loads(output.read_text()) if output.exists() else {}
    results[settings.name or pathlib.Path(settings.model).name] = {**about, "forms": forms}
    files.write_bytes(settings.output_file, files.json_bytes(results))


if __name__ == "__main__":
    flags.run(main, SmallFormsSettings, description=__doc__, positional=("model",))
