"""What results.json holds, as tables and plots ask for it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.measure import Values
from benchmarks.training_step import PRECISIONS

NAMES = {
    "ours": "albert-tf",
    "model_garden": "TF Model Garden",
    "transformers": "transformers (PyTorch)",
    "keras_hub": "keras-hub",
    "ours_strings": "albert-tf, from strings",
    "ours_recomputed": "albert-tf, --recompute_activations",
}
BUSY = 0.1  # share of the processors that others may have before it is said
STEPS = ("8x512", "16x128")


@dataclasses.dataclass(frozen=True)
class Found:
    """What results.json holds."""

    content: Mapping[str, Any]

    def values(self, name: str) -> Values | None:
        """The values of a measurement with `peak_bytes`; None unless it is done."""
        result = self.content["measurements"].get(name, {})
        if result.get("status") != "done":
            return None
        return {**result["values"], "peak_bytes": result["peak_bytes"]}

    def why_not(self, name: str) -> str:
        """Why there are no values of a measurement; "" if nobody asked for it."""
        result = self.content["measurements"].get(name, {})
        return f"{result['status']}: {result.get('reason', '')}" if result else ""

    def was_disturbed(self, name: str) -> bool:
        """Whether other programs had much of the processors during a measurement."""
        return (self.content["measurements"].get(name, {}).get("others") or 0) > BUSY

    def limit(self, step: str, precision: str) -> float | None:
        """Floating-point operations a second that matrix products reach at the shapes of a step, "8x512".

        Those that were measured between the repeats of our step, if there are any: a machine's speed changes.
        """
        ours = self.values(f"training_step.{step}.{precision}.ours") or {}
        return ours.get("limit") or self.limit_alone(step, precision)

    def limit_alone(self, step: str, precision: str) -> float | None:
        """The same, measured on its own before anything else."""
        values = self.values(f"matrix_products.{precision}")
        batch, length = map(int, step.split("x"))
        return values[str(batch * length)]["rate"] if values else None

    def share(self, step: str, precision: str, who: str) -> float | None:
        """The part of a step's time that its matrix products would take at the limit."""
        values = self.values(f"training_step.{step}.{precision}.{who}")
        limit = self.limit(step, precision)
        return values["flops"] / limit / values["median"] if values and limit else None

    def eaten(self, step: str) -> float | None:
        """Examples a second of our fastest step."""
        held = [self.values(f"training_step.{step}.{one}.ours") for one in PRECISIONS]
        return max((values["examples_a_second"] for values in held if values), default=None)


def epoch_seconds(lengths: Mapping[str, Values], batches: Mapping[str, int]) -> float:
    """Seconds of an epoch, from those of a step at some lengths.

    Example:
      ({"32": {"median": 1.0}, "64": {"median": 2.0}}, {"48": 10}) -> 15.0
    """
    known = sorted((int(length), timing["median"]) for length, timing in lengths.items())
    at, seconds = zip(*known, strict=True)
    return float(
        sum(count * np.interp(int(length), at, seconds) for length, count in batches.items())
    )


# What the step without a change has of each size.
_BASE = {"length": 128, "layers": 12, "width": 768, "batch": 8}


def growth_points(found: Found) -> dict[str, list[tuple[int, Values]]]:
    """By what grows: its sizes, ascending, with the values of the step."""
    base = found.values("growth.length.128")
    points: dict[str, dict[int, Values]] = {}
    for name in found.content["measurements"]:
        values = found.values(name) if name.startswith("growth.") else None
        if values:
            _, what, size = name.split(".")
            points.setdefault(what, {})[int(size)] = values
    for what, held in points.items():
        if base:
            held[_BASE[what]] = base
    full = found.values("training_step.8x512.float32.ours")
    if full and "length" in points:
        points["length"][512] = full
    return {what: sorted(held.items()) for what, held in points.items()}
