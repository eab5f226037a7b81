"""Early exit equals a plain loop over depths, in which every depth is a model of its own."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import load_pretrained, save_pretrained
from albert_tf.model import heads
from albert_tf.model.early_exit import EarlyExit, outputs_with_patience
from tests.helpers import BATCH, TINY, noisy, random_features

DEEP = TINY.replace(num_hidden_layers=6)
LABELS = ("a", "b", "c")
SHARING = [
    {},
    {"num_hidden_groups": 2, "inner_group_num": 2},
    {"share_parameters": "none", "embedding_size": 20},
]


def features_of(num_choices: int = 0) -> dict:
    """Sequences [B, L], or [B, C, L]."""
    features = random_features(2 * BATCH * max(1, num_choices))
    names = ("input_ids", "input_mask", "segment_ids")
    if not num_choices:
        return {name: tf.constant(features[name]) for name in names}
    length = features["input_ids"].shape[1]
    shape = [-1, num_choices, length]
    return {name: tf.constant(features[name].reshape(shape)) for name in names}


def by_a_loop(model, features, folder, patience, same) -> tuple[np.ndarray, np.ndarray]:
    """Logits and numbers of layers: each example alone, through models of one to all layers."""
    save_pretrained(model, folder)
    depths = range(1, model.config.num_hidden_layers + 1)
    of_depth = [load_pretrained(folder, num_hidden_layers=depth) for depth in depths]
    logits = np.stack([deep(features)["logits"] for deep in of_depth])
    found, numbers = [], []
    for example in range(logits.shape[1]):
        streak = 0
        for depth in depths:
            now = logits[depth - 1, example]
            repeats = depth > 1 and same(logits[depth - 2, example], now)
            streak = streak + 1 if repeats else 1
            if streak == patience:
                break
        found.append(now)
        numbers.append(depth)
    return np.array(found), np.array(numbers)


def assert_equals_the_loop(model, features, folder, early_exit, same):
    # Exports test the graph (`tests/test_export.py`).
    outputs = outputs_with_patience(model, features, early_exit)
    expected, numbers = by_a_loop(model, features, folder, early_exit.patience, same)
    np.testing.assert_array_equal(outputs["num_layers"], numbers)
    np.testing.assert_allclose(outputs["logits"], expected, atol=2e-5)
    assert len(set(numbers)) > 1  # otherwise the test would show nothing


@pytest.mark.parametrize("changes", SHARING, ids=str)
def test_labels(tmp_path, changes):
    config = DEEP.replace(**changes).with_labels(LABELS, "mine")
    model = noisy(heads.AlbertForSequenceClassification(config, seed=2), deviation=0.3)
    same = lambda before, now: before.argmax() == now.argmax()  # noqa: E731
    assert_equals_the_loop(model, features_of(), tmp_path, EarlyExit(2), same)


def test_scores_within_a_tolerance(tmp_path):
    config = DEEP.with_labels(["score"], "mine")
    model = noisy(heads.AlbertForSequenceClassification(config, seed=2))
    same = lambda before, now: abs(before - now)[0] <= 0.3  # noqa: E731
    early_exit = EarlyExit(2, tolerance=0.3)
    assert_equals_the_loop(model, features_of(), tmp_path, early_exit, same)


def test_several_labels(tmp_path):
    config = DEEP.with_labels(LABELS, "mine", is_multi_label=True)
    model = noisy(heads.AlbertForSequenceClassification(config, seed=2))
    same = lambda before, now: ((before >= 0) == (now >= 0)).all()  # noqa: E731
    early_exit = EarlyExit(2, has_several=True)
    assert_equals_the_loop(model, features_of(), tmp_path, early_exit, same)


def test_choices(tmp_path):
    model = noisy(heads.AlbertForMultipleChoice(DEEP, seed=2), deviation=0.3)
    same = lambda before, now: before.argmax() == now.argmax()  # noqa: E731
    assert_equals_the_loop(model, features_of(num_choices=4), tmp_path, EarlyExit(2), same)


def test_without_a_mask_and_without_examples():
    config = DEEP.with_labels(LABELS, "mine")
    model = noisy(heads.AlbertForSequenceClassification(config, seed=2))
    ids = features_of()["input_ids"]
    outputs = outputs_with_patience(model, {"input_ids": ids}, EarlyExit(7))  # nobody leaves
    np.testing.assert_allclose(outputs["logits"], model({"input_ids": ids})["logits"], atol=2e-5)
    assert set(outputs["num_layers"].numpy()) == {6}
    none = outputs_with_patience(model, {"input_ids": ids[:0]}, EarlyExit(2))
    assert none["logits"].shape == [0, 3] and none["num_layers"].shape == [0]
