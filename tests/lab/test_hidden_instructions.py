"""Commands run as on a processor with fewer instructions."""

import shutil
import subprocess
import sys

import pytest

from albert_tf.core.errors import UserError
from lab import hidden_instructions, machine

FEATURES = "from numpy._core._multiarray_umath import __cpu_features__ as features; "
FLAGS = machine.processor_info().get("flags", "").split()
CAN_HIDE = "cpuid_fault" in FLAGS and "avx2" in FLAGS and shutil.which("cc")


@pytest.mark.skipif(not CAN_HIDE, reason="needs cc and a processor that can interrupt CPUID")
def test_a_program_sees_all_but_what_is_hidden():
    program = FEATURES + "print(features['AVX2'], features['AVX512F'])"
    command = [sys.executable, "-c", program]
    hiding = [sys.executable, "-m", "lab.hidden_instructions", "avx512", *command]
    seen = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    left = subprocess.run(hiding, capture_output=True, text=True, check=True).stdout.split()
    assert seen == ["True", str("avx512f" in FLAGS)]
    assert left == ["True", "False"]


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
    for speed, instructions in ((1, ["avx2"]), (2, ["avx2", "avx512f"]), (3, ["avx2"])):
        run = {"model": "m", "hidden": [], "instructions": instructions, "speed": speed}
        runs = hidden_instructions.with_run(path, run)
    assert [run["speed"] for run in runs] == [2, 3]
