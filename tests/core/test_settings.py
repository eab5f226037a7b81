"""Settings: checks, the flags that are made of them, and the lines about wrong command lines."""

import dataclasses
import subprocess
import sys

import pytest

from albert_tf.core import flags
from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings, changed, setting
from albert_tf.text.settings import VocabularySettings
from tests.helpers import ROOT, error_of, fine_tuning_settings


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example(Settings):
    """One setting of each type.

    More about it.
    """

    name: str = setting("", "A name.", changes_results=False)
    kind: str = setting("", "A kind.", choices=("", "a", "b"))
    count: int | None = setting(None, "A number.", minimum=1)
    rate: float | None = setting(0.5, "A rate.", minimum=0, maximum=0.9)
    width: int = setting(7, "A width.", minimum=0)
    decay: float = setting(0.5, "A decay.", above=0, below=1)
    fast: bool = setting(True, "Whether it is fast.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Own(Example):
    """What this program has."""

    without_flags = ("width",)

    width: int = changed(Example, "width", 9)
    folder: str = setting("", "A folder.", required=True)
    source: str = setting("", "A path.", input_path=lambda path: f"get {path}")


def parsed(cls, *words, **options):
    (settings,) = flags.parse([cls], ["program", *words], **options)
    return settings


def test_a_command_line_becomes_settings():
    assert parsed(Example) == Example()
    found = parsed(Example, "--count=3", "--rate=0.25", "--nofast", "--kind=a", "--width", "0")
    assert found == Example(count=3, rate=0.25, fast=False, kind="a", width=0)
    assert parsed(Own, "x", "--name=-7", positional=["folder"]) == Own(folder="x", name="-7")
    assert type(Example(rate=0).rate) is float


def test_defaults_are_for_flags_that_are_not_given():
    def defaults(values, given):
        assert values["count"] == 4 and given == {"count"}
        return {"count": 9, "rate": 0.75}

    assert parsed(Example, "--count=4", defaults=defaults) == Example(count=4, rate=0.75)


def test_a_field_without_a_flag_has_its_default():
    assert Own(folder="x").width == 9
    assert "width" in error_of(parsed, Own, "--folder=x", "--width=3")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--count=0"], "--count must be at least 1, got 0"),
        (["--count=99999999999"], "--count must be at most 2147483647, got 99999999999"),
        (["--count=2.5"], "--count"),
        (["--rate=1"], "--rate must be at most 0.9, got 1.0"),
        (["--decay=0"], "--decay must be above 0, got 0.0"),
        (["--decay=1"], "--decay must be below 1, got 1.0"),
        (["--rate=nan"], "--rate must be a finite number, got nan"),
        (["--fast=maybe"], "--fast"),
        (["--kind=c"], "--kind"),
        (["--widht=3"], "Did you mean: width"),
        (["--train_step=3"], "--train_step is no flag of this program; --num_train_steps replaces"),
        (
            ["--depth_losses=all"],
            "--depth_losses is no flag of this program; losses of other layers",
        ),
        (["--nofast=true"], "--nofast=true does not take an argument"),
        (["--name"], "--name"),
        (["stray"], "'stray' is not a flag; write --name=value"),
    ],
    ids=str,
)
def test_a_wrong_command_line_is_one_line(words, message):
    assert message in error_of(parsed, Example, *words)


@pytest.mark.parametrize("value", ["=3", " 3"], ids=["equals sign", "blank"])
def test_all_unknown_flags_are_named_in_one_line(value):
    words = f"--train_step{value} --count=4 --widht{value} --warmup_step{value} --train_step{value}"
    line = error_of(parsed, Example, *words.split())
    parts = line.split("; and ")
    assert parts[0] == "--train_step is no flag of this program; --num_train_steps replaces it"
    assert "Did you mean: width" in parts[1]
    assert parts[2] == "--warmup_step is no flag of this program; --num_warmup_steps replaces it"
    assert len(parts) == 3


def test_a_wordpiece_file_beside_a_sentencepiece_model_is_not_read(tmp_path, caplog):
    """As in the commands of the original's README, which give both."""
    model_file = tmp_path / "30k-clean.model"
    wordpiece_file = tmp_path / "30k-clean.vocab"
    for path in (model_file, wordpiece_file):
        path.touch()
    words = [f"--spm_model_file={model_file}", f"--vocab_file={wordpiece_file}"]
    assert parsed(VocabularySettings, *words).vocabulary_file == str(model_file)
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"--vocab_file={wordpiece_file} is not read: ")


def test_what_a_flag_needs():
    assert "--folder is required: A folder." in error_of(parsed, Own)
    assert "--folder is required" in error_of(parsed, Own, "--folder=")
    line = error_of(parsed, Own, "--folder=x", "--source=README.md,no")
    assert "--source=no: no such file or folder; get no" in line
    parsed(Own, "--folder=x", "--source=README.md,hf:a/b,gs://c/*,docs")


def test_values_from_files_are_checked():
    assert error_of(Example, count="2") == "--count must be of type int, got '2'"
    assert error_of(Example, count=False) == "--count must be of type int, got False"
    assert error_of(Example, width=None) == "--width must be of type int, got None"
    assert error_of(Example, kind="c") == "--kind must be one of a, b, got 'c'"


def test_declarations():
    with pytest.raises(TypeError, match="minimun"):
        changed(Example, "width", 3, minimun=1)
    field = changed(Example, "rate", 0.25, maximum=0.75)
    expected = {**Example.__dataclass_fields__["rate"].metadata, "maximum": 0.75}
    assert field.default == 0.25 and dict(field.metadata) == expected
    assert Example.names(changes_results=False) == ("name",)


def test_help_has_every_flag_with_values_and_defaults():
    lines = flags.help_text("Does it.\n", [Example, Own]).splitlines()
    assert lines[:3] == ["Does it.", "", "What this program has."] and "More about it." not in lines
    for line in ("  --folder=TEXT (required)", "  --kind=a|b", "  --[no]fast (default: true)"):
        assert line in lines
    assert lines.index("One setting of each type.") < lines.index("  --width=NUMBER (default: 7)")
    assert max(map(len, lines)) <= 100


PROGRAM = """
import dataclasses
from albert_tf.core import errors, flags, settings
@dataclasses.dataclass(frozen=True, kw_only=True)
class Lines(settings.Settings):
    lines: int = settings.setting(9000, 'Lines.')
def main(chosen):
    if not chosen.lines:
        raise errors.UserError('nothing')
    for _ in range(chosen.lines):
        print('x' * 99)
flags.run(main, Lines)
"""


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ("--lines=3 | cat", 0, ""),
        ("--lines=0", 1, "nothing\n"),
        ("--lines=x", 2, "flag --lines=x: "),
        ("| head -1", 1, "standard output was closed\n"),
        ("--help | head -1", 0, ""),
    ],
)
def test_how_a_program_ends(words, status, message, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = f"set -o pipefail; {sys.executable} {tmp_path}/program.py {words}"
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    process = subprocess.run(
        ["bash", "-c", command], env=environment, capture_output=True, text=True, check=False
    )
    assert process.returncode == status
    assert process.stderr.startswith(f"program.py: {message}" if message else "")
    assert process.stderr.count("\n") == bool(message)


@pytest.mark.parametrize(
    ("flag", "meant"),
    {
        "--lr=1": "--learning_rate is meant",
        "--epochs=1": "--num_train_epochs is meant",
        "--batch_size=1": "--train_batch_size is meant",
        "--fp16": "--mixed_precision=mixed_float16 is meant",
        "--bf16": "--mixed_precision=mixed_bfloat16 is meant",
        "--max_length=1": "--max_seq_length is meant",
        "--model_name_or_path=x": "--init_checkpoint is meant",
        "--num-labels=2": "the labels are those of the training data",
        "--learning-rate=1": "--learning_rate is meant",
    }.items(),
)
def test_names_of_other_libraries_are_answered_with_the_flag(flag, meant):
    assert meant in error_of(fine_tuning_settings, "classifier", flag)


def test_lists_of_paths_may_have_blanks_and_globs_search_subfolders(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "x.tsv").touch()
    (tmp_path / "y.tsv").touch()
    value = f"{tmp_path}/y.tsv, {tmp_path}/**/x.tsv ,"
    settings = parsed(Own, "--folder=f", f"--source={value}")
    assert settings.source == value
    with pytest.raises(UserError, match=r"z\.tsv: no such file or folder; get "):
        parsed(Own, "--folder=f", f"--source={tmp_path}/y.tsv, {tmp_path}/**/z.tsv")


@pytest.mark.parametrize(
    ("words", "note"),
    [
        (["--use_tpu=false"], "--use_tpu=false has no effect here (--tpu_name replaces it)"),
        (["--nouse_tpu"], "--nouse_tpu has no effect here"),
        (
            ["--iterations_per_loop=1000"],
            "--iterations_per_loop=1000 has no effect here (not needed",
        ),
        (["--iterations_per_loop", "1000"], "--iterations_per_loop has no effect here (not needed"),
        (["-num_tpu_cores", "8"], "-num_tpu_cores has no effect here"),
    ],
)
def test_flags_of_the_original_that_change_nothing_get_a_note(words, note, capsys):
    assert parsed(Example, *words, "--count=3") == Example(count=3)
    assert capsys.readouterr().err.startswith(note)


def test_all_other_flags_of_the_original_are_reported_together(capsys):
    words = ["--use_tpu=false", "--use_tpu", "--train_step=3", "--warmup_step=1", "--nmae=x"]
    line = error_of(parsed, Example, *words)
    for name in ("--use_tpu is no flag", "--train_step is no flag", "--warmup_step is no flag"):
        assert name in line
    assert "nmae" in line and not capsys.readouterr().err
