"""Compares an export with its model, line by line: token ids and answers.

    python lab/tools/check_export.py runs/mrpc served/mrpc/1 pairs.txt

The lines have the format of `python -m albert_tf.predict`, whose answers are those of the runners.
"""

import argparse
import collections
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from albert_tf import predict
from albert_tf.core.errors import UserError
from albert_tf.serving import exports, predictors
from albert_tf.serving.in_graph.squad import GraphSquad
from albert_tf.serving.in_graph.text import GraphText
from albert_tf.tasks.squad.predictor import SpanOrNonePredictor, SpanPredictor
from albert_tf.tasks.tagging.predictor import TaggingPredictor

BATCH = 32


def signature_inputs(predictor, items) -> dict[str, tf.Tensor]:
    """The strings of some items as inputs for the signature."""
    names = ("question", "context")
    if isinstance(predictor, TaggingPredictor):
        names, items = ("texts",), [{"texts": predictor.check(item)[0]} for item in items]
    elif not isinstance(predictor, SpanPredictor):
        names, items = ("text_a", "text_b"), [vars(predictor.check(item)) for item in items]
    return {name: tf.constant([item[name] or "" for item in items]) for name in names}


def same_ids(predictor, graph_text, items) -> tuple[int, int]:
    """The number of sequences whose ids and segments are equal in both, and the number of all sequences."""
    inputs = signature_inputs(predictor, items)
    names = predictor.sequence_names
    table = predictor.table(list(map(predictor.check, items)))
    if isinstance(predictor, SpanPredictor):
        windows = graph_text.windows(inputs["question"], inputs["context"])
        exported = windows.features(0, len(table))
    else:
        exported = graph_text.pairs(inputs["text_a"], inputs["text_b"])
    expected = table.batch(np.arange(len(table)), int(table.lengths.max()), names)
    names = (*names, "input_mask")
    rows = [
        all(np.array_equal(exported[name][row], expected[name][row]) for name in names)
        for row in range(len(table))
    ]
    return sum(rows), len(rows)


def same_answers(expected, exported) -> tuple[bool, float]:
    """Whether two answers are equal, and the difference of their probabilities or scores."""
    if "entities" in expected:
        columns = ("label", "start", "end", "probability")
        rows = zip(*(exported[name][: exported["count"]] for name in columns), strict=True)
        theirs = [(label.decode(), start, end) for label, start, end, _ in rows]
        ours = [tuple(entity[name] for name in columns[:3]) for entity in expected["entities"]]
        pairs = zip(expected["entities"], exported["probability"], strict=False)
        differences = [abs(entity["probability"] - other) for entity, other in pairs]
        return ours == theirs, max(differences, default=0.0) if ours == theirs else 0.0
    if "start" in expected:
        theirs = exported["text"].decode(), exported["start"], exported["end"]
        same = (expected["answer"], expected["start"], expected["end"]) == theirs
        return same, abs(expected["probability"] - exported["score"])
    if "probabilities" not in expected:
        return True, abs(expected["score"] - exported["score"])
    probabilities = np.array(list(expected["probabilities"].values()))
    difference = np.abs(probabilities - exported["probabilities"]).max()
    if "labels" in expected:
        return expected["labels"] == [
            name.decode() for name in exported["labels"] if name
        ], difference
    return expected["label"] == exported["label"].decode(), difference


def main(model: str, export: str, lines: str) -> None:
    """Compares the lines in batches and prints the counts."""
    predictor = predictors.load_predictor(model)
    answer = exports.load(export).signatures["serving_default"]
    graph_text = None  # stays None for a tagger, of which only answers are compared
    if isinstance(predictor, SpanPredictor):
        has_null = isinstance(predictor, SpanOrNonePredictor)
        graph_text = GraphSquad(predictor.tokenizer, predictor.task_settings, has_null)
    elif not isinstance(predictor, TaggingPredictor):
        graph_text = GraphText(predictor.tokenizer, predictor.task_settings["max_seq_length"])
    with open(lines, encoding="utf-8") as file:
        items = [predict.parse(line.rstrip("\n")) for line in file if line.strip()]
    counts, largest = collections.Counter(), 0.0
    for begin in range(0, len(items), BATCH):
        batch = items[begin : begin + BATCH]
        if graph_text:
            same, number = same_ids(predictor, graph_text, batch)
            counts["sequences"] += number
            counts["sequences with the same tokens"] += same
        outputs = answer(**signature_inputs(predictor, batch))
        outputs = {name: tensor.numpy() for name, tensor in outputs.items()}
        for row, expected in enumerate(predictor.predict(batch)):
            exported = {name: values[row] for name, values in outputs.items()}
            is_same, difference = same_answers(expected, exported)
            counts["lines"] += 1
            counts["lines with the same answer"] += is_same
            largest = max(largest, difference)
    for name, count in counts.items():
        print(f"{name:<32}{count:>8,}")
    print(f"{'largest difference of a score':<32}{largest:>8.1e}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="folder of the model or run that was exported")
    parser.add_argument("export", help="folder of one version of the export")
    parser.add_argument("lines", help="file of lines as for predict")
    try:
        main(**vars(parser.parse_args()))
    except UserError as error:
        sys.exit(str(error))
