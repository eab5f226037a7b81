"""Runs a lowered step on the device that JAX finds, and compares loss and speed; needs only jax and numpy.

    python -m lab.tools.accelerators.lower --target=GPU --with_loss --output_dir=lowered   # on any machine
    python lab/tools/accelerators/run_step.py lowered [--steps=20] [--transformers]        # where the device is

The first step's losses must equal those that `lower.py` computed on its CPU, from the same start values and features.
`--transformers` also times the same sizes, batch and precision in PyTorch (`AlbertForPreTraining` with
scaled-dot-product attention and AdamW), in the same run on the same device.
"""

import argparse
import json
import os
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
    """A lowered step on a device.

    Args:
      folder: a folder written by `lower.py`.
    """

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
    """A line about the losses; ends the program if a loss differs from the CPU's.

    Args:
      pairs: sum and count of each loss.
      expected: sum and count of each loss on the CPU.
      precision: precision of the step.
    """
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


def transformers_step(step: Mapping[str, Any], config: Mapping[str, Any]) -> Callable[[], None]:
    """A training step of transformers' ALBERT.

    Args:
      step: the settings of the lowered step.
      config: the model's configuration.
    """
    import torch
    from transformers import AlbertConfig, AlbertForPreTraining

    device = "cuda" if torch.cuda.is_available() else "cpu"
    known = {name: value for name, value in config.items() if value is not None}
    settings = AlbertConfig(**known, attn_implementation="sdpa")
    model = AlbertForPreTraining(settings).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    shape = (step["batch"], step["length"])
    ids = torch.randint(5, config["vocab_size"], shape, device=device)
    labels = torch.where(torch.rand(shape, device=device) < 0.15, ids, -100)
    order = torch.zeros(shape[0], dtype=torch.long, device=device)
    in_bfloat16 = step["precision"] == "mixed_bfloat16"

    def call() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=in_bfloat16):
            loss = model(input_ids=ids, labels=labels, sentence_order_label=order).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()  # waits until the device has finished

    return call


def main() -> None:
    """Prints the losses, and a table of times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=20, help="timed steps")
    parser.add_argument("--transformers", action="store_true", help="time PyTorch as well")
    arguments = parser.parse_args()
    # Both libraries need some of the memory.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    step = Step(arguments.folder)
    about, settings = step.about, step.about["step"]
    print(compare(step(), about["pairs"], settings["precision"]))
    rows = [("albert-tf", seconds_of(step, arguments.steps))]
    del step
    if arguments.transformers:
        call = transformers_step(settings, about["config"])
        rows.append(("transformers", seconds_of(call, arguments.steps)))
    print(
        "| who | ms a step | examples a second | TFLOP/s, of the formula's operations |\n|---|---|---|---|"
    )
    for name, seconds in rows:
        rates = f"{settings['batch'] / seconds:.1f} | {about['flops'] / seconds / 1e12:.2f}"
        print(f"| {name} | {1e3 * seconds:.2f} | {rates} |")


if __name__ == "__main__":
    main()
