"""Numba's compilation is announced when it happens, and only then; its results need no folder of the user's."""

import re

import pytest

from tests.helpers import ROOT, run_script

MODULE = """
from albert_tf.core.compilation import announced, numba

@numba.njit(cache=True)
def add(a, b):
    return a + b

with announced("program", "two functions", 7):
    add(1, 2)
    add(1.0, 2.0)
    add(3.0, 4.0)
"""


def run(module, **environment) -> str:
    done = run_script(str(module), PYTHONPATH=str(ROOT), **environment)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "functions.py"
    path.write_text(MODULE)
    return path


def test_a_line_says_that_functions_are_compiled_and_none_that_they_are_in_the_cache(module):
    cache = {"NUMBA_CACHE_DIR": str(module.parent / "cache")}
    assert run(module, **cache) == "program: compiling two functions, once: about 7 s left\n"
    assert run(module, **cache) == ""


def test_without_a_folder_for_the_cache_a_temporary_one_is_used_and_nothing_is_left(
    module, tmp_path
):
    """Numba would refuse to import the module."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {"NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}
    line = run(module, TMPDIR=str(temporary), NUMBA_CACHE_DIR="", **environment)
    assert re.fullmatch(r"program: .*, each time \(NUMBA_CACHE_DIR .*\): about 7 s left\n", line)
    assert not list(temporary.iterdir())
