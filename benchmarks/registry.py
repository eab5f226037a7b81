"""All measurements, in the order in which they are made: what matters most comes first, should the time run out."""

from benchmarks import (
    fine_tuning,
    inference,
    input_pipeline,
    inputs,
    limits,
    preparation,
    training_step,
)
from benchmarks.measure import Measurement

MEASUREMENTS: tuple[Measurement, ...] = (
    *limits.MEASUREMENTS,
    *training_step.STEPS,
    *preparation.MEASUREMENTS,
    *input_pipeline.MEASUREMENTS,
    *inference.MEASUREMENTS,
    *fine_tuning.MEASUREMENTS,
    *training_step.MEMORY,
    *training_step.GROWTH,
    *limits.AGAIN,
)


def find(name: str) -> Measurement:
    """The measurement, or the input of measurements, of a name.

    Raises:
      KeyError: there is none.
    """
    return {one.name: one for one in (*MEASUREMENTS, *inputs.INPUTS)}[name]
