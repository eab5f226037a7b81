"""What installs the project: the lock file."""

import re
import tomllib

from tests.helpers import ROOT, run_script

LOCK = (ROOT / "requirements.lock").read_text()


def test_the_lock_has_every_package_that_the_project_names():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    locked = set(re.findall(r"^([\w.-]+)==", LOCK, re.MULTILINE))
    for requirement in named:
        name = re.match(r"[\w-]+", requirement)[0].lower().replace("_", "-")
        assert name in locked, name
    assert not {"torch", "transformers"} & locked  # of the extra "peers", which is not locked


def test_exports_are_computed_with_the_versions_of_the_whole_project():
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    pin = re.compile(r"^[\w.-]+==[^ ]+", re.MULTILINE)
    locked = set(pin.findall((ROOT / "requirements-runtime.lock").read_text()))
    names = {line.partition("==")[0] for line in locked}
    for requirement in groups["runtime"]:
        assert re.match(r"[\w-]+", requirement)[0].replace("_", "-") in names
    assert not {"tensorflow", "pandas", "scipy", "numba"} & names
    of_windows = {line for line in locked if line.startswith("colorama")}
    assert locked - of_windows <= set(pin.findall(LOCK))


def test_tensorboard_starts_with_the_locked_packages():
    finished = run_script("-m tensorboard.main", "--version")
    assert finished.returncode == 0, finished.stderr
