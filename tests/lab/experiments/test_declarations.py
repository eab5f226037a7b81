"""Declarations of experiments and scales: the paper's models, what is wrong in a file, what does not fit."""

import pytest

from albert_tf.core.errors import UserError
from lab.experiments import declarations
from tests.helpers import MICRO


@pytest.mark.parametrize("scale", declarations.names_of(declarations.SCALES))
def test_every_row_has_a_model_at_every_scale(scale):
    scale = declarations.read_scale(scale)
    without = []
    for name in declarations.names_of(declarations.DEFINITIONS):
        rows = [row for row in declarations.read_experiment(name).rows if scale.has(row)]
        without += [name] * (not rows)
        for row in rows:
            config = scale.model_config(row)
            assert config.max_position_embeddings >= scale.data["max_seq_length"]
            assert config.vocab_size == scale.vocabulary["vocab_size"]
    # A scale is for all experiments; this one compares the two models that Tables 2 and 6 compare.
    assert not without if scale.name != "ratios" else not {"table_2", "table_6"} & set(without)


TABLE = """
title = "t"
source = "s"
base = "albert-base-v1"
columns = ["masked_lm", "sop"]
rows = [{ name = "a" }, { name = "b" }]
claims = [{ text = "c", metric = "sop", higher = "a", lower = "b" }]
"""


def with_row(fields: str) -> tuple[str, str]:
    """What makes a row of the table have other fields."""
    return '{ name = "b" }', f'{{ name = "b", {fields} }}'


@pytest.mark.parametrize(
    ("text", "change", "words"),
    [
        (TABLE, with_row("model = { num_heads = 1 }"), "row 'b': model: a setting must be one of"),
        (TABLE, with_row("warm_start_from = 'c'"), "warm_start_from must be one of a; got 'c'"),
        (MICRO, ("num_warmup_steps = 2\n", ""), "[training] must have num_warmup_steps"),
        (MICRO, ("num_train_steps = 3", "train_steps = 3"), "[tasks.mrpc]: a setting must be one"),
    ],
)
def test_what_is_wrong_in_a_file_is_found_when_it_is_read(tmp_path, text, change, words):
    read = declarations.read_experiment if text is TABLE else declarations.read_scale
    path = tmp_path / "mine.toml"
    path.write_text(text)
    read(str(path))  # nothing is wrong yet
    assert text.count(change[0]) == 1
    path.write_text(text.replace(*change))
    with pytest.raises(UserError) as caught:
        read(str(path))
    message = str(caught.value)
    assert words in message and message.startswith(f"{path}: ") and "\n" not in message
