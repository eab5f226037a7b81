"""Equal commands write equal files, byte for byte, in processes that order sets and dictionaries of text differently.

Only times, event files of TensorBoard, and the fingerprint.pb of a SavedModel differ, which has a random UUID.
"""

import shutil

import pytest

from tests.faults.harness import contents
from tests.faults.test_faults import PROGRAMS, Program, fine_tuning_flags
from tests.faults.test_faults import inputs as inputs
from tests.helpers import ROOT, run_script


def tagging(inputs, output):
    return [flag for part in fine_tuning_flags(inputs, "tagging", output) for flag in part]


def sample_task(inputs, output):
    folder = ROOT / "albert_tf"
    flags = [f"--input_file={folder}", f"--output_dir={output / 'task'}", "--num_packages=3"]
    return ["-m", "data_prep.sample_task", *flags]


ALL = {**PROGRAMS, "tagging": Program(tagging), "sample task": Program(sample_task)}
del ALL["experiments"]  # they start the other programs


@pytest.mark.rare
@pytest.mark.parametrize("name", ALL)
def test_equal_commands_write_equal_files(name, inputs, tmp_path):
    if "Beam" in name:
        pytest.importorskip("apache_beam")
    output, found = tmp_path / "output", []
    for seed in ("1", "2"):
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir()
        ALL[name].prepare(inputs, output)
        start, *arguments = ALL[name].command(inputs, output)
        if start == "-m":
            start, *arguments = f"-m {arguments[0]}", *arguments[1:]
        process = run_script(start, *arguments, PYTHONHASHSEED=seed)
        assert process.returncode == 0, process.stderr[-3000:]
        found.append(contents(output))
    first, second = found
    assert first.keys() == second.keys() and len(first) > 0
    assert [name for name in first if first[name] != second[name]] == []
