"""Steps lowered for accelerators obey the rules, and the compilers take them where their environment exists."""

import dataclasses
import json
import subprocess
import sys

import pytest

from albert_tf.model import accelerator_ops
from albert_tf.model.config import AlbertConfig
from lab.tools.accelerators import check, hlo
from lab.tools.accelerators.lower import StepSettings, lower
from tests.helpers import ROOT, TINY

PYTHON = ROOT / ".venv.accelerators/bin/python"
needs_compilers = pytest.mark.skipif(
    not PYTHON.exists(), reason="needs `make accelerator-check` once"
)
SMALL = TINY.replace(hidden_size=64, embedding_size=8, intermediate_size=96, vocab_size=40)
STEPS = {
    "pretraining": {},
    "packed, dropout, accumulated, recomputed": {
        **{"packed": True, "accumulation": 2, "recompute": True, "model": "with dropout"}
    },
    "4 replicas": {"replicas": 4},
    "classification": {"task": "classification"},
    "span": {"task": "span"},
    "evaluation": {"task": "evaluation"},
}


@pytest.fixture(scope="module")
def small_models():
    """In the place of every model, a small one, whose attention takes blocks of one example."""

    def from_name(name, **_changes):
        rate = 0.1 if name == "with dropout" else 0.0
        return SMALL.replace(hidden_dropout_prob=rate, attention_probs_dropout_prob=rate)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AlbertConfig, "from_name", from_name)
        patch.setitem(accelerator_ops._BLOCK_BYTES, "TPU", 1)
        yield


@pytest.fixture(scope="module", params=STEPS.values(), ids=STEPS)
def about(request, small_models):
    """What is known about a lowered step of a small model."""
    return lower(StepSettings(batch=6, length=16, **request.param))[1]


@pytest.mark.slow
def test_a_step_has_static_shapes_no_call_of_the_host_and_products_in_bfloat16(about):
    facts = check.static_facts(about)
    assert facts["broken"] == []
    assert facts["large_products"].keys() == {"bf16 x bf16"}


def test_the_products_of_a_step_are_those_of_the_formula(about):
    """Besides attention and, if asked for, layers, which the backward pass computes again."""
    facts = check.static_facts(about)
    ratio = facts["product_flops"] / facts["formula_flops"]
    least, most = (1.2, 1.6) if about["step"]["recompute"] else (0.97, 1.15)
    assert least < ratio < most


def test_no_tensor_of_a_training_step_has_the_scores_of_all_heads(about):
    """[B, N, L, L] is kept by nothing."""
    step, heads = about["step"], SMALL.num_attention_heads
    module = hlo.Module(about["text"])
    sizes = [
        (array.bytes, array.shape)
        for _, instruction, _ in module.executed()
        for array in instruction.results
        if array.shape[-2:] == (step["length"], step["length"]) and len(array.shape) == 4
    ]
    if step["task"] != "evaluation":
        assert all(shape[0] * shape[1] < step["batch"] * heads for _, shape in sizes), sizes


def test_replicas_add_up_gradients_in_the_program(about):
    reduces = [one for one in hlo.Module(about["text"]).collectives() if "all-reduce" in one.opcode]
    assert bool(reduces) == (about["step"]["replicas"] > 1)


def result(**changes):
    step = dataclasses.asdict(StepSettings(replicas=4))
    values = {
        "step": step,
        "chip": "v5e",
        "least_effort": True,
        "broken": [],
        "peak_bytes": 5,
        "traffic": 7,
    }
    return values | {"collectives": [["all-reduce", 8], ["all-reduce", 45_000_000]]} | changes


def test_broken_rules_are_named():
    recomputed = {**result()["step"], "recompute": True}
    assert check.broken_rules([result(), result(step=recomputed, peak_bytes=4)]) == []
    lines = check.broken_rules(
        [
            result(collectives=[["all-reduce", 8]] * 3),
            result(collectives=[]),
            result(step=recomputed, peak_bytes=5),
            result(error="no kernel"),
            result(error="Used 20G of 16G hbm", needed_bytes=2e10),
            result(broken=["large products are f32 x f32"]),
        ]
    )
    expected = ["3 all-reduces", "0 all-reduces", "does not lower", "no kernel", "f32 x f32"]
    assert len(lines) == len(expected)
    for part in expected:
        assert any(part in line for line in lines), part


BROKEN_MODULE = """HloModule broken

ENTRY main {
  %a = f32[<=8,16]{1,0} parameter(0)
  %b = f32[16,4]{1,0} parameter(1)
  ROOT %c = f32[8,4]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def test_a_lowered_step_that_breaks_the_rules_is_found():
    about = {"text": BROKEN_MODULE, "operations": {"EagerPyFunc": 1}, "flops": 1}
    about["step"] = dataclasses.asdict(StepSettings())
    broken = " ".join(check.static_facts(about)["broken"])
    for part in ("not static", "EagerPyFunc", "f32 x f32"):
        assert part in broken


@needs_compilers
def test_the_compiler_takes_a_step_and_recomputation_saves_memory(tmp_path):
    """The command itself, with the least step: 20 seconds."""
    output = tmp_path / "results.jsonl"
    command = [sys.executable, "-m", "lab.tools.accelerators.check", "--chips=v5e"]
    flags = ["--batches=8", "--lengths=128", f"--output_file={output}"]
    done = subprocess.run([*command, *flags], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("albert-base-v2, 8 x 128") == 2
    kept, recomputed = map(json.loads, output.read_text().splitlines())
    assert recomputed["peak_bytes"] < kept["peak_bytes"]
