"""The content of results.json in the form that tables and plots need."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from lab.benchmarks.measure import Values
from lab.benchmarks.training_step import PACKED, PRECISIONS

NAMES = {
    "ours": "albert-tf",
    "ours_packed": "albert-tf, packed rows",
    "model_garden": "TF Model Garden",
    "transformers": "transformers (PyTorch)",
    "keras_hub": "keras-hub",
    "ours_strings": "albert-tf, from strings",
    "ours_recomputed": "albert-tf, --recompute_activations",
}
BUSY = 0.1  # a measurement is disturbed if other programs use more than this share
STEPS = ("8x512", "16x128")


@dataclasses.dataclass(frozen=True)
class RunResults:
    """The content of results.json."""

    content: Mapping[str, Any]

    def values(self, name: str) -> Values | None:
        """The values of a measurement, with `peak_bytes`; None if it is not done."""
        result = self.content["measurements"].get(name, {})
        if result.get("status") != "done":
            return None
        return {**result["values"], "peak_bytes": result["peak_bytes"]}

    def values_by_name(self, *prefixes: str) -> dict[str, Values]:
        """The values of all finished measurements whose names begin with one of the prefixes."""
        names = [name for name in self.content["measurements"] if name.startswith(prefixes)]
        return {name: values for name in names if (values := self.values(name))}

    def why_not(self, name: str) -> str:
        """Why a measurement has no values; "" if it was not requested."""
        result = self.content["measurements"].get(name, {})
        return f"{result['status']}: {result.get('reason', '')}" if result else ""

    def was_disturbed(self, name: str) -> bool:
        """Whether other programs used much of the processors during a measurement."""
        return (self.content["measurements"].get(name, {}).get("others") or 0) > BUSY

    def limit(self, step: str, precision: str) -> float | None:
        """Floating-point operations per second of matrix products with the shapes of a step such as "8x512".

        Values measured between the repeats of our step are preferred, because the machine's speed changes over time.
        """
        ours = self.values(f"training_step.{step}.{precision}.ours") or {}
        return ours.get("limit") or self.limit_alone(step, precision)

    def limit_alone(self, step: str, precision: str) -> float | None:
        """The same value, measured separately at the start of the run."""
        values = self.values(f"matrix_products.{precision}")
        batch, length = map(int, step.split("x"))
        return values[str(batch * length)]["rate"] if values else None

    def share(self, step: str, precision: str, who: str) -> float | None:
        """The share of a step's time that its matrix products would need at the limit."""
        values = self.values(f"training_step.{step}.{precision}.{who}")
        limit = self.limit(step, precision)
        return values["flops"] / limit / values["median"] if values and limit else None

    def rates(self, step: str, precision: str) -> dict[str, float]:
        """The examples per second of a step, by implementation."""
        prefix = f"training_step.{step}.{precision}."
        measured = self.values_by_name(prefix)
        return {
            name.removeprefix(prefix): values["examples_a_second"]
            for name, values in measured.items()
        }

    def tokens_of_example(self, step: str) -> float:
        """Mean number of tokens of an example at a step's length; 0 if no step with packed rows was measured."""
        values = (self.values(f"training_step.{step}.{name}.{PACKED}") for name in PRECISIONS)
        return next((each["tokens_of_example"] for each in values if each), 0.0)

    def inference_cells(self) -> dict[str, Values]:
        """The `cells` of inference by implementation."""
        values_of = {who: self.values(f"inference.{who}") for who in NAMES}
        return {who: values["cells"] for who, values in values_of.items() if values}

    def examples_a_second(self, step: str) -> float | None:
        """The rate of our fastest form of a step."""
        rates = [self.rates(step, precision) for precision in PRECISIONS]
        ours = [of[who] for of in rates for who in ("ours", PACKED) if who in of]
        return max(ours, default=None)


def epoch_seconds(lengths: Mapping[str, Values], batches: Mapping[str, int]) -> float:
    """Seconds of an epoch, interpolated between the times of a step at several lengths.

    Example:
      ({"32": {"median": 1.0}, "64": {"median": 2.0}}, {"48": 10}) -> 15.0
    """
    known = sorted((int(length), timing["median"]) for length, timing in lengths.items())
    seconds = np.interp(list(map(int, batches)), *zip(*known, strict=True))
    return float(seconds @ list(batches.values()))


# The sizes of the basic step; each of the other steps differs from it in one size.
_BASE = {"length": 128, "layers": 12, "width": 768, "batch": 8}


def growth_points(results: RunResults) -> dict[str, list[tuple[int, Values]]]:
    """For each size that grows, its values in ascending order, each with the measured values of the step."""
    base = results.values("growth.length.128")
    points: dict[str, dict[int, Values]] = {}
    for name, values in results.values_by_name("growth.").items():
        _, dimension, size = name.split(".")
        own = points.setdefault(dimension, {_BASE[dimension]: base} if base else {})
        own[int(size)] = values
    full = results.values("training_step.8x512.float32.ours")
    if full and "length" in points:
        points["length"][512] = full
    return {dimension: sorted(by_size.items()) for dimension, by_size in points.items()}
