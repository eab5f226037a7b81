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


def test_tensorboard_starts_with_the_locked_packages():
    finished = run_script("-m tensorboard.main", "--version")
    assert finished.returncode == 0, finished.stderr
