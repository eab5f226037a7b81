"""Steps lowered for a TPU obey the rules; `make accelerator-check` also compiles them."""

import sys

import pytest

from lab.tools.accelerators import check

SETTINGS = check.CheckSettings(batch=6, length=16, python=sys.executable)


@pytest.mark.slow
@pytest.mark.parametrize("step", check.STEPS.values(), ids=check.STEPS)
def test_a_step_has_static_shapes_no_call_of_the_host_and_products_in_bfloat16(step):
    _, text, features = check.lower(SETTINGS, step)
    assert check.broken_rules(text) == []
    assert check.operations(text)["bf16 x bf16"] > 1e6
    assert ("all-reduce(" in text) == (step.replicas > 1)
    assert features == (10 if step.packed else 7)


BROKEN = """HloModule broken

ENTRY main {
  %a = f32[<=8,16]{1,0} parameter(0)
  %b = f32[16,4]{1,0} parameter(1)
  ROOT %c = f32[8,4]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
op: "EagerPyFunc"
"""


def test_a_step_that_breaks_the_rules_is_found():
    static, host, product = check.broken_rules(BROKEN)
    assert "not static" in static and "PyFunc" in host and "f32" in product
