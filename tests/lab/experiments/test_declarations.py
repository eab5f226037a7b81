"""Declarations of experiments and scales: the paper's models, what is wrong in a file, what does not fit."""

import pytest

from albert_tf.core.errors import UserError
from lab.experiments import declarations
from lab.experiments.engine import count_parameters
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


# Without heads; facts of the paper's architecture.
EXACT = {
    "table_1": [109_081_344, 334_607_360, 11_683_584, 17_683_968, 58_724_864, 222_595_584],
    "table_3": [
        *(87_648_000, 89_650_176, 93_654_528, 109_081_344),
        *(9_681_408, 11_683_584, 15_687_936, 31_114_752),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_declared_models_have_the_papers_parameters(name):
    rows = declarations.read_experiment(name).rows
    # Shapes are counted, nothing is computed; the two largest BERTs of a table are enough of them.
    counted = [
        count_parameters(declarations.PAPER_SIZES.model_config(row), with_heads=False)
        for row in rows
    ]
    assert counted == EXACT[name]


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
        (TABLE, ('title = "t"', "title ="), "is not TOML"),
        (TABLE, ('title = "t"', "title = 7"), "Expected `str`, got `int` - at `$.title`"),
        (TABLE, ('{ name = "b" }', '{ name = "A!" }'), "expected rows with distinct names"),
        (TABLE, with_row("model = { num_heads = 1 }"), "row 'b': model: a setting must be one of"),
        (TABLE, with_row("model = { num_attention_heads = 5 }"), "num_attention_heads mu"),
        (TABLE, with_row("training = { seed = 3 }"), "got 'seed'"),  # a run has its own
        (TABLE, with_row("warm_start_from = 'c'"), "warm_start_from must be one of a; got 'c'"),
        (TABLE, ('lower = "b"', 'lower = "c"'), "claim 'c': a row must be one of a, b; got 'c'"),
        (TABLE, ('lower = "b"', "lower = 5, at_most = 5"), "expected one of lower, near, at_most"),
        (MICRO, ("standard = ", "usual = "), "in [texts], must be one of usual; got 'standard'"),
        (MICRO, ("num_warmup_steps = 2\n", ""), "[training] must have num_warmup_steps"),
        (MICRO, ("num_train_steps = 6", "num_train_steps = 3"), "at least twice log_every_steps=2"),
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
