"""Declarations of experiments and scales: the paper's models."""

import pytest

from lab.experiments import declarations


@pytest.mark.parametrize("scale", declarations.names_of(declarations.SCALES))
def test_every_row_has_a_model_at_every_scale(scale):
    scale = declarations.read_scale(scale)
    without = []
    for name in declarations.names_of(declarations.DEFINITIONS):
        rows = [row for row in declarations.read_experiment(name).rows if scale.has(row)]
        if not rows:
            without.append(name)
        for row in rows:
            config = scale.model_config(row)
            assert config.max_position_embeddings >= scale.data["max_seq_length"]
            assert config.vocab_size == scale.vocabulary["vocab_size"]
    # A scale is for all experiments; this one compares the two models that Tables 2 and 6 compare.
    if scale.name == "ratios":
        without = [name for name in without if name in ("table_2", "table_6")]
    assert not without
