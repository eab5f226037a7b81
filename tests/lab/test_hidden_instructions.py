"""Commands run as on a processor with fewer instructions."""

import shutil
import subprocess
import sys

import pytest

from albert_tf.core.errors import UserError
from lab import hidden_instructions, machine

FEATURES = "from numpy._core._multiarray_umath import __cpu_features__ as features; "
CAN_HIDE = "cpuid_fault" in machine.processor_info().get("flags", "") and shutil.which("cc")


@pytest.mark.skipif(not CAN_HIDE, reason="needs cc and a processor that can interrupt CPUID")
def test_a_program_sees_what_is_not_hidden_alone():
    program = FEATURES + "print(features['AVX2'], features['AVX512F'])"
    command = ["-m", "lab.hidden_instructions", "avx512", sys.executable, "-c", program]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True)
    has_avx2 = "avx2" in hidden_instructions.instructions()
    assert done.stdout.split() == [str(has_avx2), "False"]


def test_what_is_hidden_is_not_among_the_instructions(monkeypatch):
    flags = "sse avx2 avx_vnni avx512f avx512_vnni amx_int8"
    monkeypatch.setattr(machine, "processor_info", lambda: {"flags": flags})
    assert hidden_instructions.title_of(hidden_instructions.instructions()) == "AMX"
    monkeypatch.setenv("HIDDEN_INSTRUCTIONS", "amx,avx512")
    assert hidden_instructions.instructions() == ["avx2", "avx_vnni"]
    assert hidden_instructions.title_of(["avx2", "avx_vnni"]) == "AVX2 and VNNI"
    monkeypatch.setenv("HIDDEN_INSTRUCTIONS", "amx,avx512,avx_vnni")
    assert hidden_instructions.title_of(hidden_instructions.instructions()) == "AVX2 alone"


def test_an_unknown_name_is_an_error(tmp_path):
    with pytest.raises(UserError, match="sse: expected avx512, avx_vnni, amx"):
        hidden_instructions.environment("avx512,sse", str(tmp_path))


def test_a_run_replaces_that_of_the_same_model_and_instructions(tmp_path):
    path = str(tmp_path / "runs.json")
    for speed, hidden in ((1, ["avx512"]), (2, []), (3, ["avx512"])):
        runs = hidden_instructions.with_run(path, {"model": "m", "hidden": hidden, "speed": speed})
    assert [run["speed"] for run in runs] == [2, 3]
