r"""Prints the tables of docs/costs.md: costs of data preparation and pretraining.

    python -m lab.tools.scaling_table --num_train_steps=1000000 --utilization=0.5 \
        --prices=v5e=0.9,a100=1.3

They are computed from sizes, peak rates and prices; nothing is measured here. Some constants were measured elsewhere,
with their sources.
"""

import dataclasses
from typing import NamedTuple

from albert_tf.core import flags
from albert_tf.core.settings import Settings, setting
from albert_tf.core.tables import table
from albert_tf.model.config import AlbertConfig
from lab.flops import example_flops

_SIZES = ("base", "large", "xlarge", "xxlarge")
MODELS = (*(f"albert-{size}-v2" for size in _SIZES), "bert-base", "bert-large")


class Chip(NamedTuple):
    """An accelerator: its published rate, and its price.

    Sources: docs.cloud.google.com/tpu/docs (pages of v3, v5e, v6e), NVIDIA's data sheets. Prices are the last known
    ones of 2026-11, when this was written, and were not checked again: V100 is an eighth of Amazon's p3dn.24xlarge;
    A100 and H100 are EC2 Capacity Blocks, end of 2024; TPUs are Google's list prices, US, 2025.
    """

    teraflops: float  # peak of dense bfloat16 (V100: float16) products
    dollars: float  # per hour


CHIPS = {
    "v100": Chip(125, 3.90),
    "a100": Chip(312, 1.84),
    "h100": Chip(989, 4.92),
    "v3": Chip(123, 2.00),
    "v5e": Chip(197, 1.20),
    "v6e": Chip(918, 2.70),
}
# In the names of TPUs up to v4 and of v5p, the number counts cores, two per chip; for v5e and v6e it counts chips.
MACHINES = {
    "8 V100": ("v100", 8),
    "8 A100": ("a100", 8),
    "8 H100": ("h100", 8),
    "TPU v3-8": ("v3", 4),
    "TPU v3-512": ("v3", 256),
    "TPU v5e-64": ("v5e", 64),
    "TPU v6e-8": ("v6e", 8),
}


class Report(NamedTuple):
    """A published speed, at length 512 and 20 predictions."""

    who: str
    model: str
    machine: str
    chip: str
    num_chips: int
    examples_per_second: float


REPORTS = (
    Report("aws-samples", "albert-base-v2", "8 V100", "v100", 8, 0.24 * 4096),
    Report("aws-samples", "albert-base-v2", "64 V100", "v100", 64, 1.73 * 4096),
    Report("albert#7, if base", "albert-base-v2", "TPU v3-8", "v3", 4, 512e6 / (21 * 86400)),
    Report("albert#198, a user", "albert-xxlarge-v2", "TPU v3-512", "v3", 256, 2141),
    Report("paper, 32 h", "albert-xxlarge-v2", "512 v3 chips", "v3", 512, 125e3 * 4096 / 115200),
)


class Preparation(NamedTuple):
    """The cost of a kind of records, measured on 25.7 MB of Wikipedia and books (docs/costs.md)."""

    name: str
    processor_seconds: float  # per megabyte of text
    record_bytes: float  # per byte of text
    examples: float  # per megabyte of text


PREPARATIONS = (
    Preparation("full, 10 passes", 9.6 / 25.7, 635.71 / 25.7, 217_947 / 25.7),
    Preparation("compact, 10 passes", 6.4 / 25.7, 129.70 / 25.7, 217_947 / 25.7),
    Preparation("dynamic, 1 pass", 3.1 / 25.7, 10.27 / 25.7, 20_554 / 25.7),
)
CORPUS_GIGABYTES = (16, 160)
NUM_CORES = (2, 128)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScalingSettings(Settings):
    """What is trained, and assumptions about machines."""

    num_train_steps: int = setting(125_000, "Steps.", minimum=1)
    train_batch_size: int = setting(4096, "Examples in a step.", minimum=1)
    max_seq_length: int = setting(512, "Tokens in an example.", minimum=1)
    max_predictions_per_seq: int = setting(77, "Predictions in an example.", minimum=0)
    utilization: float = setting(
        0.4, "Share of the peak rate that training reaches.", minimum=0.01, maximum=1
    )
    core_price: float = setting(0.05, "Dollars for a processor core and hour.", minimum=0)
    disk_price: float = setting(0.02, "Dollars for a gigabyte of storage and month.", minimum=0)
    prices: str = setting(
        "", f"Dollars for a chip and hour, such as v5e=0.9,a100=1.3; chips: {', '.join(CHIPS)}."
    )

    def __post_init__(self):
        super().__post_init__()
        try:
            pairs = (item.split("=") for item in self.prices.split(",") if item)
            given = {name: float(price) for name, price in pairs}
        except ValueError:
            self.refuse("prices", f"must be like v5e=0.9,a100=1.3; got {self.prices}")
        if unknown := given.keys() - CHIPS.keys():
            self.refuse("prices", f"names an unknown chip: {', '.join(sorted(unknown))}")
        object.__setattr__(
            self, "price_of", {name: chip.dollars for name, chip in CHIPS.items()} | given
        )


def flops_table(settings: ScalingSettings) -> list[str]:
    """Operations for an example, a step and the whole training, by model."""
    rows = []
    for name in MODELS:
        flops = flops_of(name, settings)
        step = flops * settings.train_batch_size
        total = step * settings.num_train_steps
        rows.append([name, f"{flops / 1e12:.3f}", f"{step / 1e15:.2f}", f"{total / 1e18:,.0f}"])
    return table("model | TFLOP per example | PFLOP per step | EFLOP in all", rows)


def flops_of(model: str, settings: ScalingSettings) -> float:
    """`example_flops` for a model given by name."""
    config = AlbertConfig.from_name(model)
    return example_flops(config, settings.max_seq_length, settings.max_predictions_per_seq)


def reports_table() -> list[str]:
    """The published speeds as shares of the peak rate."""
    rows = []
    for report in REPORTS:
        flops = example_flops(AlbertConfig.from_name(report.model), 512, 20)
        rate = report.examples_per_second * flops / 1e12
        peak = report.num_chips * CHIPS[report.chip].teraflops
        cells = [f"{report.examples_per_second:,.0f}", f"{rate:,.0f} of {peak:,.0f}"]
        rows.append([report.who, report.model, report.machine, *cells, f"{rate / peak:.0%}"])
    return table("who | model | machine | examples/s | TFLOP/s of peak | utilization", rows)


def training_table(settings: ScalingSettings) -> list[str]:
    """Time and dollars of the whole training, by machine and model."""
    rows = []
    num_examples = settings.num_train_steps * settings.train_batch_size
    for name, (chip, num_chips) in MACHINES.items():
        rate = num_chips * CHIPS[chip].teraflops * 1e12 * settings.utilization
        hours = [num_examples * flops_of(model, settings) / rate / 3600 for model in MODELS[:4]]
        price = num_chips * settings.price_of[chip]
        cells = [f"{duration(hour)}, ${hour * price:,.0f}" for hour in hours]
        rows.append([name, f"{price:,.2f}", *cells])
    return table(f"machine | $ per hour | {' | '.join(MODELS[:4])}", rows)


def duration(hours: float) -> str:
    """Minutes up to two hours, hours up to two days, then days."""
    if hours < 2:
        return f"{hours * 60:.0f} min"
    return f"{hours:.0f} h" if hours < 48 else f"{hours / 24:,.1f} d"


def preparation_table(settings: ScalingSettings) -> list[str]:
    """Processor time, disk and dollars of records, by size of the corpus."""
    rows = []
    num_read = settings.num_train_steps * settings.train_batch_size
    for size in CORPUS_GIGABYTES:
        for way in PREPARATIONS:
            hours = way.processor_seconds * size * 1000 / 3600
            disk = way.record_bytes * size
            examples = way.examples * size * 1000
            rows.append(
                [f"{size} GB", way.name, f"{examples / 1e6:,.0f} M", f"{num_read / examples:.1f}"]
                + [f"{disk:,.0f} GB", f"{hours:.1f}"]
                + [duration(hours / cores) for cores in NUM_CORES]
                + [f"{hours * settings.core_price:.2f}", f"{disk * settings.disk_price:,.1f}"]
            )
    header = "text | records | examples | times read | disk | core hours"
    columns = [header, *(f"on {cores} cores" for cores in NUM_CORES), "$ cores", "$ disk per month"]
    return table(" | ".join(columns), rows)


def main(settings: ScalingSettings) -> None:
    """Prints all tables."""
    training = training_table(settings)
    tables = (preparation_table(settings), flops_table(settings), reports_table(), training)
    print("\n\n".join("\n".join(lines) for lines in tables))


if __name__ == "__main__":
    flags.run(main, ScalingSettings, description=__doc__)
