"""Declarations of experiments and scales: the paper's models, what is wrong in a file, what does not fit."""

import dataclasses

import pytest

from albert_tf.core.errors import UserError
from albert_tf.model.heads import AlbertForPreTraining
from lab.experiments import declarations
from lab.experiments.__main__ import ExperimentSettings
from lab.experiments.engine import count_parameters
from tests.helpers import MICRO, TINY


def test_every_table_and_figure_is_there():
    names = declarations.names_of(declarations.DEFINITIONS)
    own = ["width_or_sharing_steps", "width_or_sharing_time"]
    assert names == ["figure_1", *(f"table_{number}" for number in range(1, 14)), *own]
    for name in names:
        for row in declarations.read_experiment(name).rows:
            assert set(row.training) <= {"steps_factor"}, (name, row.name)


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
    "table_4": [
        *(31_114_752, 83_078_400, 57_117_696, 109_081_344),
        *(11_683_584, 63_647_232, 37_686_528, 89_650_176),
        *(18_771_456, 25_859_328, 32_947_200, 47_122_944),
    ],
    "table_12": [17_683_968, 58_724_864, 222_595_584, 495_518_208],
}


@pytest.mark.parametrize("name", EXACT)
def test_declared_models_have_the_papers_parameters(name):
    rows = declarations.read_experiment(name).rows
    # Shapes are counted, nothing is computed; the two largest BERTs of a table are enough of them.
    counted = [
        count_parameters(declarations.PAPER_SIZES.model_config(row), with_heads=False)
        for row in rows
    ]
    assert counted == EXACT[name]


def test_counted_parameters_are_the_models():
    for with_heads in (False, True):
        model = AlbertForPreTraining(TINY)
        counted = model if with_heads else model.encoder
        assert count_parameters(TINY, with_heads=with_heads) == counted.count_params()


def test_a_scale_translates_sizes_and_a_row_has_the_last_word():
    scale = declarations.Scale(
        name="s",
        title="",
        seeds=(1,),
        texts={},
        model={"vocab_size": 50, "hidden_dropout_prob": 0.0},
        sizes={"hidden_size": {"768": 20, "1024": 24}, "num_hidden_layers": {"12": 3}},
    )
    row = declarations.Row(
        name="r",
        base="albert-base-v1",
        model={"hidden_dropout_prob": 0.2, "num_attention_heads": 2},
    )
    config = scale.model_config(row)
    assert (config.hidden_size, config.intermediate_size, config.num_hidden_layers) == (20, 80, 3)
    assert (config.vocab_size, config.hidden_dropout_prob) == (50, 0.2)
    assert config.attention_probs_dropout_prob == 0.1  # albert-base-v1's
    large = dataclasses.replace(row, base="albert-large-v1")
    assert not scale.has(large)
    with pytest.raises(UserError, match=r"\[sizes.num_hidden_layers\] has no entry for 24"):
        scale.model_config(large)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("title =", "is not TOML"),
        ("title = 't'\nsource = 's'\nrowz = []", "rowz: unknown here; known are name, title"),
        ("source = 's'\n[[rows]]\nname = 'r'\nbase = 'bert-base'", "title is missing"),
        ("title = 't'\nsource = 's'", "expected rows"),
        ("title = 't'\nsource = 's'\n[[rows]]\nname = 'r'\nbase = 'bert'", "base must be one of"),
        (
            "title = 't'\nsource = 's'\nbase = 'bert-base'\n[[rows]]\nname = 'r'\nwarm_start_from = 'q'",
            "warm_start_from must name a row above it, got 'q'",
        ),
        (
            "title = 't'\nsource = 's'\nbase = 'bert-base'\nrows = [{name = 'r'}]\n[[claims]]\n"
            "text = 'c'\nmetric = 'sop'\nhigher = 'q'",
            "claim 'c' names the row 'q'",
        ),
        (
            "title = 't'\nsource = 's'\nbase = 'bert-base'\nrows = [{name = 'r'}]\nbudget = 'days'",
            "budget must be one of none, steps, seconds",
        ),
    ],
)
def test_wrong_declarations_are_refused_in_one_line(tmp_path, text, words):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        declarations.read_experiment(str(path))
    assert words in str(caught.value)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_unknown_names_are_refused():
    with pytest.raises(UserError, match="no such experiment; known are figure_1, table_1"):
        declarations.read_experiment("table_99")
    with pytest.raises(
        UserError, match="no such scale; known are nano, paper, ratios, shapes, small, small_cpu"
    ):
        declarations.read_scale("huge")
    experiment = declarations.read_experiment("table_5")
    chosen = ExperimentSettings(experiments="table_5", rows="3; none").chosen_rows(experiment)
    assert [row.name for row in chosen] == ["SOP", "none"]
    with pytest.raises(UserError, match="has no row 'order'; its rows are none, NSP, SOP"):
        ExperimentSettings(experiments="table_5", rows="order").chosen_rows(experiment)


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


def with_claim(fields: str) -> tuple[str, str]:
    """What makes the table's claim compare something else."""
    return 'lower = "b"', fields


def with_field(fields: str) -> tuple[str, str]:
    """What gives the table further fields."""
    return 'source = "s"', f'source = "s"\n{fields}'


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (with_field("rows = 3"), "is not TOML"),  # a key that comes twice
        (('rows = [{ name = "a" }, { name = "b" }]', "rows = 3"), "rows must be a list of tables"),
        (
            ('{ name = "b"', '{ name = "A!"'),
            "expected rows with distinct names, which differ in letters",
        ),
        (('title = "t"', "title = 7"), "title must be text, got 7"),
        (with_field('measures = "speed"'), "measures must be a list of texts, got 'speed'"),
        (
            with_field('measures = ["sped"]'),
            "measures, entry 1 must be one of parameters, speed, intr",
        ),
        (('"masked_lm"', '"mlm"'), "columns, entry 1 must be one of parameters, masked_lm, nsp"),
        (with_field('tasks = ["sst-2"]'), "squad2.0; got 'sst-2'"),
        (with_field('speed_reference = "c"'), "speed_reference must be one of a, b; got 'c'"),
        (('"masked_lm"', '"speedup"'), "speedup needs speed_reference"),
        (with_field("initial_tasks = { rt = 'mnli' }"), "initial_tasks must be one of cola"),
        (with_field("initial_tasks = { rte = 'mlni' }"), "a task of initial_tasks must be one of"),
        (with_field("initial_tasks = { rte = 'mnli', mnli = 'rte' }"), "got 'mnli'"),
        (with_field("fine_tuning = { num_rums = 5 }"), "fine_tuning, for squad1.1: a setting must"),
        (with_field("fine_tuning = { num_runs = 0 }"), "num_runs must be at least 1, got 0"),
        # A setting of the reader that a GLUE task does not have.
        (with_field("fine_tuning = { doc_stride = 9 }"), "fine_tuning, for mnli: a setting must"),
        (with_field("budget = 'none'"), "with budget none, measures must be one of parameters, sp"),
        (with_row("model = { num_heads = 1 }"), "row 'b': model: a setting must be one of vocab_s"),
        (with_row("model = { hidden_size = '9' }"), "hidden_size must be of type int, got '9'"),
        (with_row("model = { num_attention_heads = 5 }"), "row 'b': model: num_attention_heads mu"),
        (with_row("data = { sentence_tusk = 'nsp' }"), "row 'b': data: a setting must be one of"),
        (with_row("data = { sentence_task = 'nsb' }"), "sentence_task must be one of , sop, nsp"),
        (with_row("data = { input_file = 'x' }"), "got 'input_file'"),  # a run has its own
        (with_row("training = { learning_rat = 1 }"), "row 'b': training: a setting must be one"),
        (with_row("training = { learning_rate = 'high' }"), "learning_rate must be of type float"),
        (with_row("training = { steps_factor = 0 }"), "steps_factor must be a number above 0"),
        (with_row("training = { seed = 3 }"), "got 'seed'"),
        (with_row("same_shape = 'c'"), "row 'b': same_shape must be one of a, b; got 'c'"),
        (with_row("ensemble_of = ['c']"), "row 'b': ensemble_of must be one of a; got 'c'"),
        (with_row("ensemble_of = ['b']"), "ensemble_of must be one of a; got 'b'"),
        (
            with_row("measures = ['sped']"),
            "rows, entry 'b': measures, entry 1 must be one of parameters",
        ),
        (with_row("paper = { nsp = 90 }"), "a column of paper must be one of masked_lm, sop; got"),
        (with_row("paper = { sop = [90] }"), "paper.sop must be text or a number, got [90]"),
        (('metric = "sop"', 'metric = "nsp"'), "metric must be one of masked_lm, sop; got 'nsp'"),
        (with_claim('lower = "b", instead = "avg"'), "instead must be one of parameters"),
        (with_claim("within = 1"), "expected one of lower, near, at_most, got none"),
        (with_claim("lower = 5, at_most = 5"), "expected one of lower, near, at_most, got lower,"),
        (with_claim('at_most = "c"'), "claim 'c' names the row 'c'; expected one of a, b"),
        (with_claim("near = 5"), "near needs within"),
        (with_claim("lower = 5, within = 1"), "within must be above 0 with near"),
        (with_claim("at_most = 5, within = -1"), "within must be above 0 with near"),
        (with_claim("at_most = [5]"), "claims, entry 1: at_most must be text or a number, got [5]"),
        (('higher = "a"', 'higher = ""'), "claim 'c' names the row ''"),
    ],
)
def test_what_is_wrong_in_a_table_is_found_when_it_is_read(tmp_path, change, words):
    path = tmp_path / "mine.toml"
    path.write_text(TABLE)
    declarations.read_experiment(str(path))  # nothing is wrong yet
    check_refused(declarations.read_experiment, path, TABLE, change, words)


def check_refused(read, path, text, change, words) -> None:
    assert text.count(change[0]) == 1
    path.write_text(text.replace(*change))
    with pytest.raises(UserError) as caught:
        read(str(path))
    message = str(caught.value)
    assert words in message and message.startswith(f"{path}: ") and "\n" not in message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("seeds = [1, 2]", "seeds = []"), "seeds must be whole numbers from 0, at least one"),
        (("seeds = [1, 2]", "seeds = 1"), "seeds must be a list of whole numbers, got 1"),
        (("seconds = 1", "seconds = -1"), "seconds must be at least 0, got -1"),
        (
            ('standard = ["text"]', 'standard = "text"'),
            "texts.standard must be a list of texts, got 'text'",
        ),
        (
            ('standard = ["text"]', "standard = []"),
            "[texts] standard must have at least one pattern",
        ),
        (("standard = ", "usual = "), "[texts] must have `standard`"),
        (("[vocabulary]", '[fallback_texts]\nstandard = ["text"]\n[vocabulary]'), "got 'text'"),
        (("vocab_size = 70\n\n[data]", "vocab_sice = 70\n\n[data]"), "[vocabulary]: a setting"),
        (("dupe_factor = 1", "dupe_factor = 0"), "[data]: dupe_factor must be at least 1, got 0"),
        (("single_segment", "single_segments"), "[data]: a setting must be one of do_lower_case"),
        (("train_batch_size", "batch"), "[training]: a setting must be one of"),
        (("num_warmup_steps = 2\n", ""), "[training] must have num_warmup_steps"),
        (("[model]", "[experiments.mine]\nsteps = 3\n[model]"), "[experiments.mine]: a setting"),
        (("max_position_embeddings", "positions"), "[model]: a setting must be one of"),
        (
            ("1 = 1, 12 = 2", "12 = 2.5"),
            "sizes.num_hidden_layers.12 must be a whole number, got 2.5",
        ),
        (("1 = 1, 12 = 2", "twelve = 2"), "[sizes.num_hidden_layers] must map whole numbers"),
        (("[model]", "[steps_factors]\nx = 3\n[model]"), "[steps_factors] must map numbers"),
        (("max_probe_examples", "max_probes"), "[intrinsic] must be one of max_examples, max_prob"),
        (("max_examples = 30\n", "max_examples = -1\n"), "[intrinsic] max_examples must be at"),
        (("steps = 6", "steps = 3"), "[speed] steps must be at least twice log_every_steps=2"),
        (("\nsteps = 6", ""), "[speed] steps must be at least twice log_every_steps=2"),
        (("[tasks.mrpc]", "[tasks.mprc]"), "a task in [tasks] must be one of cola"),
        (("num_train_steps = 3", "train_steps = 3"), "[tasks.mrpc]: a setting must be one of"),
        (("max_seq_length = 20", "max_seq_length = 2"), "max_seq_length must be at least 8, got 2"),
    ],
)
def test_what_is_wrong_in_a_scale_is_found_when_it_is_read(tmp_path, change, words):
    check_refused(declarations.read_scale, tmp_path / "mine.toml", MICRO, change, words)


def test_a_scale_can_complete_another(tmp_path):
    path, other = tmp_path / "mine.toml", tmp_path / "other.toml"
    other.write_text(MICRO)
    own = f'''
based_on = "{other}"
title = "hours"

[training]
num_train_steps = 9

[sizes]
hidden_size = {{ 1024 = 21 }}
'''
    path.write_text(own)
    base, scale = map(declarations.read_scale, (str(other), str(path)))
    assert (scale.name, scale.title, scale.seeds) == ("mine", "hours", (1, 2))
    assert scale.training == {**base.training, "num_train_steps": 9}
    assert scale.sizes == {
        **base.sizes,
        "hidden_size": {"1024": 21},
    }  # an entry is replaced as a whole
    assert scale.tasks == base.tasks

    for wrong, words in (
        ('"huge"', "huge: no such scale; known are nano"),
        ("3", f"{path}: based_on must be text, got 3"),
        (
            '"small_cpu"',
            f"{path}: based_on must name a scale that has no based_on, got 'small_cpu'",
        ),
    ):
        path.write_text(own.replace(f'"{other}"', wrong))
        with pytest.raises(UserError) as caught:
            declarations.read_scale(str(path))
        assert str(caught.value).startswith(words) and "\n" not in str(caught.value)
    path.write_text(
        f"training = 9\n{own.replace('[training]', '[model]').replace('num_train_steps = 9', '')}"
    )
    with pytest.raises(UserError, match="training must be a table, got 9"):
        declarations.read_scale(str(path))


def test_a_row_can_have_measures_of_its_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(TABLE.replace(*with_row('measures = ["speed"]')))
    experiment = declarations.read_experiment(str(path))
    first, second = map(experiment.measures_of, experiment.rows)
    assert first == experiment.measures == ("parameters", "intrinsic", "tasks")
    assert second == ("speed",)


def test_a_claim_can_say_that_a_row_is_not_above_another(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(TABLE.replace(*with_claim('at_most = "b", within = 0.5')))
    (claim,) = declarations.read_experiment(str(path)).claims
    assert (claim.higher, claim.at_most, claim.within) == ("a", "b", 0.5)
    assert claim.lower == claim.near == ""


def test_what_a_scale_lacks_for_an_experiment_is_found_before_it_is_run(micro):
    scale, experiment = micro
    declarations.check_fits(experiment, scale)

    def refused(words, scale=scale, chosen=(), rows=(), **changes):
        changed = dataclasses.replace(experiment, **changes)
        with pytest.raises(UserError, match=words) as caught:
            declarations.check_fits(changed, scale, chosen, rows)
        assert str(caught.value).startswith("scale micro, for mine: ")
        return changed

    timeless = dataclasses.replace(scale, seconds=0)
    timed = refused("expected `seconds` above 0", timeless, budget="seconds")
    declarations.check_fits(timed, scale)
    declarations.check_fits(timed, timeless, ["parameters"])

    no_speed = dataclasses.replace(scale, speed={})
    refused(r"expected \[speed\] with steps", no_speed, budget="seconds")
    fast = refused(r"expected \[speed\] with steps", no_speed, measures=("speed", "intrinsic"))
    declarations.check_fits(fast, no_speed, ["intrinsic"])
    one, two = experiment.rows
    measured = dataclasses.replace(two, measures=["speed"])
    refused(r"expected \[speed\] with steps", no_speed, rows=[one, measured])

    started = refused(r"expected \[tasks.mnli\], which mrpc st", initial_tasks={"mrpc": "mnli"})
    declarations.check_fits(started, scale, ["intrinsic"])

    contradictory = dataclasses.replace(scale, model={**scale.model, "num_attention_heads": 5})
    refused("row 'one layer': num_attention_heads must divide", contradictory)
    # A row that the scale has no sizes for is left out, not refused, and so is one that starts from it.
    deep = dataclasses.replace(two, model={"num_hidden_layers": 7})
    deeper = dataclasses.replace(one, name="deeper", warm_start_from=deep.name)
    changed = dataclasses.replace(experiment, rows=(one, deep, deeper))
    declarations.check_fits(changed, scale)
    assert [row.name for row in changed.rows if scale.has_row(changed, row)] == ["one layer"]
    counted = dataclasses.replace(changed, budget="none")
    assert all(scale.has_row(counted, row) for row in counted.rows)
