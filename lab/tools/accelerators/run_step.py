"""Runs a lowered step on the device that JAX finds, compares its loss, and times it; needs only jax and numpy.

    python -m lab.tools.accelerators.lower --target=GPU --with_loss --output_dir=lowered   # on any machine
    python lab/tools/accelerators/run_step.py lowered [--steps=20]                         # where the device is

The first step's losses must equal those that `lower.py` computed on its CPU, from the same start values and features.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[3]))

from lab.tools.accelerators import values  # noqa: E402
from lab.tools.accelerators.compile import with_aliases  # noqa: E402

TOLERANCE = {"float32": 1e-3, "mixed_bfloat16": 2e-2}  # relative difference of a loss


class Step:
    """A step that `lower.py` wrote to a folder, on a device."""

    def __init__(self, folder: pathlib.Path):
        import jax
        from jaxlib import _jax, xla_client

        jax.config.update("jax_enable_x64", True)  # TensorFlow counts steps in int64
        self.about = json.loads((folder / "step.json").read_text())
        self.device = jax.devices()[0]
        features = values.of_features(self.about["features"], self.about["vocab_size"])
        variables = [values.of_variable(*variable) for variable in self.about["variables"]]
        arrays = [*features.values(), *variables]
        self._arguments = [jax.device_put(array, self.device) for array in arrays]
        module = _jax.mlir.hlo_to_stablehlo((folder / "step.hlo").read_bytes())
        module, self._aliases = with_aliases(module, len(features))
        devices = xla_client.DeviceList((self.device,))
        options = xla_client.CompileOptions()
        self._program = self.device.client.compile_and_load(module, devices, options)

    def __call__(self) -> dict[str, np.ndarray]:
        """Runs a step; returns the (sum, count) of each loss and metric, before the update."""
        results = self._program.execute_sharded(self._arguments)
        outputs = [arrays[0] for arrays in results.disassemble_into_single_device_arrays()]
        for argument, result in self._aliases.items():
            self._arguments[argument] = outputs[result]
        pairs = sorted(self.about["pairs"])
        return {name: np.asarray(one) for name, one in zip(pairs, outputs, strict=False)}


def compare(pairs: Mapping[str, np.ndarray], expected: Mapping[str, list], precision: str) -> str:
    """A line about the losses, given as (sum, count); ends the program if a loss differs from the expected one."""
    texts = []
    for name in (name for name in expected if name.endswith("_loss")):
        ours, theirs = (pair[0] / pair[1] for pair in (pairs[name], expected[name]))
        texts.append(f"{name} {ours:.5f} (CPU {theirs:.5f})")
        if not abs(ours - theirs) <= TOLERANCE[precision] * abs(theirs):
            sys.exit(f"{texts[-1]}: differs by more than {TOLERANCE[precision]:.0e}")
    return ", ".join(texts)


def seconds_of(call: Callable[[], Any], steps: int) -> float:
    """The median of the seconds of a step, after two steps that are not counted."""
    times = []
    for _ in range(steps + 2):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times[2:])


def main() -> None:
    """Prints the losses and the median time of a step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=20, help="timed steps")
    arguments = parser.parse_args()
    step = Step(arguments.folder)
    about, settings = step.about, step.about["step"]
    print(compare(step(), about["pairs"], settings["precision"]))
    seconds = seconds_of(step, arguments.steps)
    examples, teraflops = settings["batch"] / seconds, about["flops"] / seconds / 1e12
    print(
        f"{1e3 * seconds:.2f} ms per step, {examples:.1f} examples per second,"
        f" {teraflops:.2f} TFLOP/s of the formula's operations"
    )


if __name__ == "__main__":
    main()
