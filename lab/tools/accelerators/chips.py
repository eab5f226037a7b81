"""Published sizes and rates of accelerators, and their prices."""

from typing import NamedTuple


class Chip(NamedTuple):
    """An accelerator.

    Sources: docs.cloud.google.com/tpu/docs (pages of v3, v4, v5e, v5p, v6e), NVIDIA's data sheets.
    """

    teraflops: float  # peak of dense bfloat16 (V100: float16) products
    gigabytes_a_second: float  # of its memory
    gigabytes: float  # memory of a device: the chip, or one of the two cores of a v3
    dollars: float  # per hour


# Prices are the last known ones of 2026-11, when this was written, and were not checked again: V100 is an eighth of
# Amazon's p3dn.24xlarge; A100 and H100 are EC2 Capacity Blocks, end of 2024; TPUs are Google's list prices, US, 2025.
CHIPS = {
    "v100": Chip(125, 900, 32, 3.90),
    "a100": Chip(312, 2039, 80, 1.84),
    "h100": Chip(989, 3350, 80, 4.92),
    "v3": Chip(123, 900, 16, 2.00),
    "v4": Chip(275, 1228, 32, 3.22),
    "v5e": Chip(197, 819, 16, 1.20),
    "v5p": Chip(459, 2765, 95, 4.20),
    "v6e": Chip(918, 1640, 32, 2.70),
}
