"""All measurements in order: the most important come first, in case the time is not enough for all of them."""

from lab.benchmarks import (
    engines,
    fine_tuning,
    inference,
    input_pipeline,
    inputs,
    limits,
    preparation,
    step_parts,
    training_step,
)
from lab.benchmarks.measure import Measurement

MEASUREMENTS: tuple[Measurement, ...] = (
    *limits.MEASUREMENTS,
    *training_step.STEPS,
    *preparation.MEASUREMENTS,
    *input_pipeline.MEASUREMENTS,
    *inference.MEASUREMENTS,
    *engines.MEASUREMENTS,
    *fine_tuning.MEASUREMENTS,
    *step_parts.MEASUREMENTS,
    *training_step.MEMORY,
    *training_step.GROWTH,
    *limits.AGAIN,
)


def find(name: str) -> Measurement:
    """The measurement, or the data for measurements, with a given name.

    Raises:
      KeyError: there is no such name.
    """
    return {each.name: each for each in (*MEASUREMENTS, *inputs.INPUTS)}[name]
