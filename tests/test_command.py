"""The command `albert-tf`, and the wheel that installs it."""

import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

from albert_tf import command
from tests.helpers import ROOT

MODULES = {**command.PROGRAMS, **command.DATA_PROGRAMS}


def albert_tf(*words: str, cwd=ROOT, path=ROOT) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", "from albert_tf import command; command.main()", *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={"PYTHONPATH": str(path), "PATH": ""},
        check=False,
    )


def test_every_program_has_a_name():
    """Those at the top of the package, those of data preparation, and those of the tasks."""
    files = {*ROOT.glob("albert_tf/*.py"), *ROOT.glob("albert_tf/data_prep/*.py")}
    programs = {file for file in files if re.search(r"\n(def run\(|run = )", file.read_text())}
    programs |= {*ROOT.glob("albert_tf/tasks/*/definition.py")}  # of fine-tuning
    programs.remove(ROOT / "albert_tf/tasks/pretraining/definition.py")
    named = {ROOT / f"{module.replace('.', '/')}.py" for module in MODULES.values()}
    assert named == programs


def test_the_overview_has_a_line_for_every_program():
    lines = albert_tf("--help").stdout.splitlines()
    assert [line.split()[0] for line in lines[2:]] == [*command.PROGRAMS, command.DATA]
    assert max(map(len, lines)) <= 100
    lines = albert_tf("data").stdout.splitlines()
    assert [line.split()[0] for line in lines[2:]] == list(command.DATA_PROGRAMS)
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("words", [["squat"], ["data", "split"], ["--do_train"]], ids=" ".join)
def test_an_unknown_program_is_one_line(words):
    process = albert_tf(*words)
    assert process.returncode == 2 and "expected" in process.stderr
    assert len(process.stderr.splitlines()) == 1


def test_a_program_of_data_is_found_from_its_name_alone():
    process = albert_tf("train_sentencepiece", "--vocab_size=99")
    assert process.stderr.endswith("expected albert-tf data train_sentencepiece\n")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("wheel")
    # A copy, because the build leaves files beside the sources.
    subprocess.run(["cp", "-r", *map(str, SOURCES), str(folder)], check=True)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", str(folder / "dist"), str(folder)], check=True)
    (path,) = (folder / "dist").glob("*.whl")
    return path


SOURCES = [ROOT / name for name in ("pyproject.toml", "README.md", "LICENSE", "albert_tf")]


@pytest.mark.slow
def test_the_wheel_has_one_package_with_everything_in_it(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
        (entry_points,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        assert b"albert-tf = albert_tf.command:main" in archive.read(entry_points)
    tracked = subprocess.run(
        ["git", "ls-files", "albert_tf"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert sorted(names) == sorted(tracked.stdout.split())


@pytest.mark.slow
def test_the_wheel_works_away_from_the_checkout(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    (tmp_path / "page.txt").write_text("One sentence. Another one.\n")
    here = {"cwd": tmp_path, "path": tmp_path / "installed"}
    flags = ["--input_file=page.txt", "--output_file=sentences.txt"]
    process = albert_tf("data", "split_sentences", *flags, **here)
    assert process.returncode == 0, process.stderr
    assert (tmp_path / "sentences.txt").read_text().split("\n")[:2] == [
        "One sentence.",
        "Another one.",
    ]
    assert "--[no]do_train" in albert_tf("classify", "--help", **here).stdout
