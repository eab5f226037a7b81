"""Initial values from counts: hand-made counts, heads that attend to neighbors, and a model that has the values."""

import json

import numpy as np
import pytest

from albert_tf.formats import pretrained
from albert_tf.text.tokenizer import Tokenizer
from lab.small_en import initial_values
from lab.small_en.initial_values import attention, co_occurrences, embeddings_of, sinusoids
from tests.helpers import train_spm

TEXT = [
    f"the {a} house is {b} and the {b} mill is {a}"
    for a in ("old", "red", "tall")
    for b in ("new", "wide")
]


@pytest.fixture
def spm_file(tmp_path):
    return train_spm(tmp_path / "spiece.model", TEXT, vocab_size=25)


def test_co_occurrences_are_counted_within_lines_by_distance(spm_file):
    tokenizer = Tokenizer.from_file(spm_file, do_lower_case=True)
    lines = ["the old house", "house"]
    counts = co_occurrences(iter([f"{line}\n" for line in lines]), tokenizer)
    expected = np.zeros_like(counts)
    for ids in map(tokenizer.encode, lines):
        for i, a in enumerate(ids):
            for j, b in enumerate(ids):
                if 0 < abs(i - j) <= 8:
                    expected[a, b] += 1 / abs(i - j)
    np.testing.assert_allclose(counts, expected, rtol=1e-6)


def test_tokens_with_equal_neighbors_have_equal_embeddings():
    rng = np.random.default_rng(3)
    counts = np.zeros((30, 30), np.float32)
    counts[:20, :20] = rng.integers(0, 9, (20, 20))
    counts[7] = counts[4]
    counts = counts + counts.T
    counts[:, 7] = counts[:, 4]
    counts[7] = counts[4]
    embeddings = embeddings_of(counts, 6, rng)
    assert embeddings.shape == (30, 6)
    np.testing.assert_allclose(embeddings[7], embeddings[4], atol=1e-3)
    assert np.linalg.norm(embeddings[5] - embeddings[4]) > 0.1
    assert abs(embeddings[:20].std() - 1) < 1e-6 and embeddings[20:].any()


def test_heads_attend_to_the_tokens_before_after_and_to_all():
    size, width, length, heads = 64, 96, 40, 6
    rng = np.random.default_rng(5)
    to_hidden = np.linalg.qr(rng.normal(size=(width, size)))[0].T
    hidden = sinusoids(length, size) @ to_hidden
    kernels = attention(to_hidden.T, heads, rng)
    assert {name: kernel.shape for name, kernel in kernels.items()} == dict.fromkeys(
        ("query", "key", "value", "output"), (width, width)
    )
    positions = np.arange(length)
    for head, expected in zip(range(heads), (-1.4, -1.4, 1.4, 1.4, None, None), strict=True):
        columns = slice(head * width // heads, (head + 1) * width // heads)
        scores = (hidden @ kernels["query"][:, columns]) @ (hidden @ kernels["key"][:, columns]).T
        if expected is None:
            assert np.abs(scores).max() < 1
        else:
            best = scores[10:30].argmax(1) - positions[10:30]
            assert set(best) <= {round(expected), round(expected) + int(np.sign(expected))}


def test_a_model_begins_with_the_frequencies_and_is_loaded(spm_file, tmp_path):
    config = {"vocab_size": Tokenizer.from_file(spm_file, do_lower_case=True).vocab_size}
    config |= {
        "embedding_size": 16,
        "hidden_size": 48,
        "num_attention_heads": 6,
        "intermediate_size": 56,
    }
    config |= {"num_hidden_layers": 2, "max_position_embeddings": 40, "initializer_range": 0.04}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "text.txt").write_text("\n".join(TEXT))
    initial_values.main(
        initial_values.InitialValuesSettings(
            albert_config_file=str(tmp_path / "config.json"),
            input_file=str(tmp_path / "text.txt"),
            spm_model_file=spm_file,
            output_dir=str(tmp_path / "model"),
        )
    )
    variables = pretrained.read_weights(str(tmp_path / "model")).arrays
    bias = variables["cls/predictions/output_bias"]
    assert abs(np.exp(bias).sum() - 1) < 1e-3
    np.testing.assert_allclose(variables["cls/predictions/transform/dense/bias"], 3.0)
