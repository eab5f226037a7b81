"""Folding: initial values of a smaller ALBERT from a trained encoder."""

import numpy as np
import pytest

from albert_tf import fold, load_pretrained, save_pretrained
from albert_tf.formats import folding, pretrained
from albert_tf.formats.depth import GROUP
from albert_tf.formats.weights import Weights
from albert_tf.model.config import AlbertConfig
from albert_tf.model.heads import AlbertForPreTraining, AlbertForSpan
from tests.helpers import error_of

TEACHER = AlbertConfig(
    vocab_size=500,
    embedding_size=32,
    hidden_size=32,
    num_hidden_layers=4,
    num_hidden_groups=4,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=20,
    share_parameters="none",
)
_KERNEL = "inner_group_0/ffn_1/intermediate/dense/kernel"


@pytest.fixture(scope="module")
def teacher():
    variables = AlbertForPreTraining(TEACHER, seed=3).named_variables()
    arrays = {name: variable.numpy() for name, variable in variables.items()}
    return Weights("teacher", TEACHER, arrays)


def _folded(teacher, *, layers_from="middle", **sizes):
    return folding.fold(teacher, teacher.config.replace(**sizes), layers_from=layers_from)


def test_a_model_of_the_same_sizes_is_the_same(teacher):
    folded, explained = _folded(teacher)
    assert explained == 1.0
    for name in folded.arrays:
        np.testing.assert_array_equal(folded.arrays[name], teacher.arrays[name])


@pytest.mark.parametrize("strategy", ["all", "attention", "ffn", "none"])
def test_every_sharing_strategy_gives_a_complete_model(teacher, strategy):
    groups = 1 if strategy == "none" else 2
    folded, _ = _folded(
        teacher, embedding_size=8, share_parameters=strategy, num_hidden_groups=groups
    )
    _, report = pretrained.build_model(folded)
    assert not [name for name in report.initialized if name.startswith("bert/")]


@pytest.mark.parametrize("layers_from", ("middle", "mean", "first"))
def test_a_group_has_the_values_of_its_layers(teacher, layers_from):
    sizes = {"share_parameters": "all", "num_hidden_groups": 2}
    folded, _ = _folded(teacher, layers_from=layers_from, **sizes)
    of_layer = [teacher.arrays[f"{GROUP}{layer}/{_KERNEL}"] for layer in (2, 3)]
    expected = {"middle": of_layer[1], "first": of_layer[0], "mean": np.mean(of_layer, axis=0)}
    found = folded.arrays[f"{GROUP}1/{_KERNEL}"]
    np.testing.assert_allclose(found, expected[layers_from], rtol=1e-6)


def test_the_projection_has_no_free_direction_and_more_width_explains_more(teacher):
    results = [_folded(teacher, embedding_size=size) for size in (8, 24)]
    assert results[0][1] < results[1][1] <= 1.0
    for folded, _ in results:
        # LayerNorm's outputs sum to 0: a common value in a column would change nothing, and explode in training.
        kernel = folded.arrays["bert/encoder/embedding_hidden_mapping_in/kernel"]
        assert np.abs(kernel).max() < 10
        np.testing.assert_allclose(kernel.sum(axis=0), 0, atol=1e-3)


def test_frequent_tokens_are_kept_best(teacher):
    frequencies = np.full(500, 1e-4)
    frequencies[:8] = 1.0
    config = teacher.config.replace(embedding_size=8)
    weighted, _ = folding.fold(teacher, config, frequencies=frequencies)
    uniform, _ = folding.fold(teacher, config, frequencies=np.ones(500))
    ids = np.arange(8)
    places = np.zeros(8, int)
    expected = folding.first_inputs(teacher, ids, places)
    errors = [
        np.mean((folding.first_inputs(folded, ids, places) - expected) ** 2)
        for folded in (weighted, uniform)
    ]
    assert errors[0] < errors[1]


def test_the_program_prints_the_error_of_each_layer(tiny_pretrained, tmp_path, capsys):
    model = {"model": str(tiny_pretrained)}
    fold.main(fold.FoldSettings(**model, output_dir=str(tmp_path / "f"), embedding_size=3))
    table = capsys.readouterr().out.split("hidden state")[1]
    errors = [float(line.split()[-1]) for line in table.splitlines()[1:]]
    assert len(errors) == 2 and min(errors) > 0
    fold.main(fold.FoldSettings(**model, output_dir=str(tmp_path / "same")))
    width = load_pretrained(tiny_pretrained).config.embedding_size
    assert load_pretrained(tmp_path / "same").config.embedding_size == width
    wider = fold.FoldSettings(**model, output_dir=str(tmp_path / "w"), embedding_size=width + 1)
    assert "--embedding_size" in error_of(fold.main, wider)


def test_a_fine_tuned_head_is_kept(tiny_pretrained, tmp_path):
    trained = AlbertForSpan(load_pretrained(tiny_pretrained).config, seed=4)
    save_pretrained(trained, tmp_path / "squad")
    model = fold.FoldSettings(
        model=str(tmp_path / "squad"), output_dir=str(tmp_path / "f"), embedding_size=3
    )
    fold.main(model)
    found = load_pretrained(tmp_path / "f").head
    expected = trained.head
    np.testing.assert_array_equal(found.output_weights, expected.output_weights)


def test_the_error_of_a_layer_is_relative_to_the_variance():
    targets = np.array([[1.0, 2.0], [3.0, 6.0]])  # squared deviations: 1 + 1 + 4 + 4
    assert folding.relative_error(targets + [[1.0, 0.0], [0.0, 2.0]], targets) == pytest.approx(0.5)
