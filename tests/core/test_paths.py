"""Every program ends with one line for every kind of path that it cannot use, within `LIMIT` seconds."""

import dataclasses
import functools
import itertools
import os
import signal
from unittest import mock

import pytest
from absl import flags as absl_flags

from albert_tf.core import flags
from albert_tf.core.errors import UserError
from tests.core.test_wrong_flags import PROGRAMS
from tests.helpers import ROOT, check_settings
from tests.wrong_flags import run_of

LIMIT = 60  # only something that does not end takes so long
OUTPUTS = {"output_dir", "output_file", "output_prefix", "eval_output_file"}
# What a program needs besides, so that it reads little and writes nothing if a path is wrong.
BESIDES = {
    "data_prep.sample_corpus": ["--input_file=albert_tf/core/errors.py", "--num_workers=1"],
    "data_prep.split_sentences": ["--eval_fraction=0.1", "--eval_output_file=eval.txt"],
}
OURS = {
    **{name: flags for name, flags in PROGRAMS.items() if name.startswith(("run_", "albert_tf."))},
    **{name: flags for name, flags in PROGRAMS.items() if name.startswith("data_prep.")},
    "data_prep.sample_task": ["--output_dir=x", "--input_file=albert_tf/core/errors.py"],
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory) -> dict[str, str]:
    """A path of each kind."""
    folder = tmp_path_factory.mktemp("paths")
    (folder / "file").write_text("neither a model nor a number\n")
    (folder / "folder").mkdir()
    (folder / "folder" / "note").write_text("of somebody else\n")
    (folder / "unreadable").mkdir(mode=0o000)
    (folder / "loop").symlink_to(folder / "loop")
    os.mkfifo(folder / "pipe")
    names = ("missing/path", "file", "folder", "unreadable", "loop", "pipe", "file/below")
    return {**{n: f"{folder}/{n}" for n in names}, "proc": "/proc/x", "null": "/dev/null"}


@functools.cache
def program(name: str) -> dict:
    """What the program gives to `flags.run`."""
    return run_of(name if name.endswith(".py") else f"{name} ".rstrip())


def run(name: str, *arguments: str) -> None:
    """Runs a program in this process."""
    captured = program(name)
    values = absl_flags.FlagValues()
    flags.define_flags(captured["classes"], values)
    values([name, *arguments])
    if captured.get("defaults"):
        flags._fill(captured["defaults"], values)
    settings = [flags.settings_from_flags(cls, values) for cls in captured["classes"]]
    check_settings(settings)
    captured["main"](*settings)


class Endless(BaseException):
    """A program did not end; no program handles this error."""


def fail(*_):
    raise Endless(f"not ended after {LIMIT} seconds")


@pytest.mark.filterwarnings(
    "ignore:.* found in sys.modules"
)  # of a program that a test has imported
@pytest.mark.parametrize("name", OURS)
def test_every_kind_of_path_ends_a_program(name, paths, tmp_path, monkeypatch, capfd):
    fields = itertools.chain(*map(dataclasses.fields, program(name)["classes"]))
    own = [field.name for field in fields if field.metadata["input_path"] or field.name in OUTPUTS]
    fixed = [*OURS[name], *BESIDES.get(name, [])]
    for folder in ("README.md", "docs", "albert_tf"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    handler = signal.signal(signal.SIGALRM, fail)
    failures = []
    try:
        for flag, (kind, path) in itertools.product(own, paths.items()):
            signal.alarm(LIMIT)
            try:
                with mock.patch("sys.stdin"):
                    run(name, *fixed, f"--{flag}={path}")
            except UserError as error:
                assert "\n" not in str(error)
            except (Exception, Endless) as error:
                failures.append((flag, kind, repr(error)[:300]))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
    assert not failures
    assert own
