"""What installs the project: the lock file, `make setup`, the Dockerfile. Nothing is downloaded."""

import ast
import os
import re
import subprocess
import tomllib

import pytest

from tests.helpers import ROOT
from tests.test_command import SOURCES

LOCK = (ROOT / "requirements.lock").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile and their arguments."""
    lines = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line.strip()]


def test_the_lock_has_an_exact_version_and_checksums_for_each_package():
    packages = re.split(r"\n(?=\w)", re.sub(r"^#.*\n", "", LOCK, flags=re.MULTILINE).strip())
    assert len(packages) > 100
    for package in packages:
        requirement, *checksums = package.split(" \\\n    ")
        assert re.fullmatch(r"[\w.-]+==[\w.+]+( ; .+)?", requirement), requirement
        assert checksums and all(
            re.fullmatch("--hash=sha256:[0-9a-f]{64}", line) for line in checksums
        )
    assert "://" not in LOCK  # no address of an index


def test_the_lock_has_every_package_that_the_project_names():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    locked = set(re.findall(r"^([\w.-]+)==", LOCK, re.MULTILINE))
    for requirement in named:
        name = re.match(r"[\w-]+", requirement)[0].lower().replace("_", "-")
        assert name in locked, name
    assert not {"torch", "transformers"} & locked  # of the extra "peers", which is not locked


def test_the_dockerfile_builds_the_wheel_that_is_tested_from_files_that_docker_gets():
    """tests/test_command.py builds this wheel from the same files, with the same flags, and runs it."""
    of_kind = {}
    for kind, arguments in instructions(DOCKERFILE):
        of_kind.setdefault(kind, []).append(arguments)
    assert set(of_kind) == {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "ENTRYPOINT", "CMD"}
    copied = [path for arguments in of_kind["COPY"] for path in arguments.split()[:-1]]
    assert {ROOT / path for path in copied} == {*SOURCES, ROOT / "requirements.lock"}
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    assert sorted(line[1:] for line in ignore if line.startswith("!")) == sorted(copied)
    locked, wheel = of_kind["RUN"]
    assert locked.endswith(" --require-hashes --requirement requirements.lock")
    assert wheel.endswith(" --no-deps --no-build-isolation .")
    (image,) = of_kind["FROM"]
    python = re.fullmatch(r"python:(3\.\d+)-slim-\w+", image)[1]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert any(text.endswith(python) for text in project["classifiers"])
    assert ast.literal_eval(of_kind["ENTRYPOINT"][0]) == list(project["scripts"])
    assert ast.literal_eval(of_kind["CMD"][0]) == ["--help"]


@pytest.mark.parametrize("fails", [False, True])
def test_setting_up_shows_progress_and_says_why_it_fails(tmp_path, fails):
    """A few lines for a hundred packages, also in a log; the real rule, with a pip that installs nothing."""
    packages = "".join(f"echo Collecting package{number}==1.0; " for number in range(101))
    end = (
        "echo 'ERROR: no network' >&2; exit 1"
        if fails
        else "echo Installing collected packages: all"
    )
    python = tmp_path / "python3.12"
    python.write_text(
        "#!/bin/bash\n"
        'case "$*" in\n'
        '  *" venv "*) mkdir -p .venv/bin; cp "$0" .venv/bin/python;;\n'
        "  *--version*) echo Python 3.12.1;;\n"
        f"  *--require-hashes*) echo 'WARNING: old' >&2; {packages} {end};;\n"
        "esac\n"
    )
    python.chmod(0o755)
    for name in ("Makefile", "requirements.lock"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    command = ["make", "setup", f"USE_PYTHON={python}"]
    # The tests may run under make, whose variables would make this one a part of it.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    total = sum("==" in line for line in LOCK.splitlines())
    counted = [f"  {number} of about {total} packages" for number in (20, 40, 60, 80, 100)]
    first, *lines = done.stdout.splitlines()
    assert first.startswith("setting up .venv with Python 3.12.1")
    if fails:
        assert done.returncode == 2 and lines == counted
        assert "ERROR: no network\nmake: .venv could not be set up, see above\n" in done.stderr
    else:
        assert lines == [*counted, "  installing them", ".venv is ready"], done.stderr
        assert done.returncode == 0 and not done.stderr
    assert (tmp_path / ".venv/ready").exists() != fails
