"""All measurements in order: the most important come first, in case the time is not enough for all of them."""

from lab.benchmarks import engines, inputs, preparation, training_step
from lab.benchmarks.measure import Measurement

MEASUREMENTS: tuple[Measurement, ...] = (
    *training_step.STEPS,
    *preparation.MEASUREMENTS,
    *engines.MEASUREMENTS,
    *training_step.MEMORY,
)


def find(name: str) -> Measurement:
    """The measurement, or the data for measurements, with a given name.

    Raises:
      KeyError: there is no such name.
    """
    return {each.name: each for each in (*MEASUREMENTS, *inputs.INPUTS)}[name]
