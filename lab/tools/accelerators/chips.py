"""Published sizes and rates of accelerators."""

from typing import NamedTuple


class Chip(NamedTuple):
    """What a device offers to a step; a device is a chip, or one of the two cores of a TPU v3.

    Sources: docs.cloud.google.com/tpu/docs (pages of v3, v4, v5e, v5p, v6e), NVIDIA's data sheet of the H100 SXM.
    """

    devices: int  # devices per chip
    teraflops: float  # peak of dense bfloat16 products of a device
    gigabytes_a_second: float  # of a device's memory
    gigabytes: float  # memory of a device


CHIPS = {
    "v3": Chip(2, 123 / 2, 900 / 2, 16),
    "v4": Chip(1, 275, 1228, 32),
    "v5e": Chip(1, 197, 819, 16),
    "v5p": Chip(1, 459, 2765, 95),
    "v6e": Chip(1, 918, 1640, 32),
    "h100": Chip(1, 989, 3350, 80),
}


def roofline(chip: str, flops: float, traffic: float) -> tuple[float, float]:
    """The minimum seconds of a step at the published peaks: for its products, and for its traffic.

    Args:
      chip: one of `CHIPS`.
      flops: number of operations of the products.
      traffic: number of bytes read from and written to the memory.
    """
    of_chip = CHIPS[chip]
    return flops / of_chip.teraflops / 1e12, traffic / of_chip.gigabytes_a_second / 1e9
