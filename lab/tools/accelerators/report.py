"""Prints a report of a file of results: estimates of training, all compiled programs, and the rules that they break.

    python -m lab.tools.accelerators.report --input_file=results.jsonl > table.md

An estimate is computed from the compiled program and the chip's published peaks, not measured: a step takes at least
the time of its products at the peak rate, and at least the time of its traffic at the peak bandwidth.
"""

import collections
import dataclasses
import importlib.metadata
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from albert_tf.core import flags
from albert_tf.core.settings import Settings, setting
from albert_tf.core.tables import table
from lab.tools import scaling_table
from lab.tools.accelerators import check
from lab.tools.accelerators.chips import CHIPS, roofline

Result = Mapping[str, Any]

TPUS = tuple(name for name in CHIPS if name.startswith("v"))
_ON_ALL_CHIPS = """On each TPU: the largest batch of a device (of v3, a core), by the line through two programs and
the device's memory; and the hours of a chip at its peak rate of products, without traffic."""
# Share of a chip's memory; the runtime uses the rest, as the compiler for v5e reports.
_USABLE = 15.75 / 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportSettings(Settings):
    """The results, and what is trained."""

    input_file: str = setting("", "File of `check --output_file`.", required=True, input_path=True)
    num_train_steps: int = setting(125_000, "Steps.", minimum=1)
    train_batch_size: int = setting(4096, "Examples in a step.", minimum=1)

    @property
    def num_examples(self) -> int:
        """Examples of the whole training."""
        return self.num_train_steps * self.train_batch_size


def whole_models(results: Iterable[Result]) -> list[list[Result]]:
    """The compiled pretraining steps of whole models on one device, by chip, model and kind, from fewest to most
    examples.

    Packed rows, and steps that do not compile, are left out.

    Args:
      results: results of `check`.
    """
    kinds: dict[str, list[Result]] = collections.defaultdict(list)
    for result in results:
        step = result["step"]
        is_whole = step["num_layers"] == 0 and "error" not in result
        is_plain = step["task"] == "pretraining" and step["replicas"] == 1 and not step["packed"]
        if is_whole and is_plain:
            known = [result["chip"], {**step, "batch": 0}, result["least_effort"]]
            key = json.dumps(known, sort_keys=True)
            kinds[key].append(result)
    return [
        sorted(kind, key=lambda result: result["step"]["batch"])
        for _, kind in sorted(kinds.items())
    ]


def largest_batch(kind: Sequence[Result], chip: str = "") -> int | None:
    """The number of examples that fit into memory, by the line through two programs; None if only one was compiled.

    Args:
      kind: programs of one kind, from `whole_models`.
      chip: the chip with this memory; by default the chip of the programs.
    """
    (fewest, least), (most, largest) = (
        (result["step"]["batch"], check.reserved(result)) for result in (kind[0], kind[-1])
    )
    if fewest == most:
        return None
    limit = CHIPS[chip or kind[0]["chip"]].gigabytes * 2**30 * _USABLE
    return most + int((limit - largest) // ((largest - least) / (most - fewest)))


def estimates(results: Iterable[Result], settings: ReportSettings) -> list[str]:
    """The table of estimates. It shows no traffic for programs compiled with the least effort, where it has no meaning.

    Args:
      results: results of `check`.
      settings: what is trained.
    """
    rows = []
    for kind in whole_models(results):
        result = kind[-1]
        step, chip = result["step"], CHIPS[result["chip"]]
        traffic = 0 if result["least_effort"] else result["traffic"]
        times = roofline(result["chip"], result["product_flops"], traffic)
        hours = settings.num_examples / (step["batch"] * chip.devices / max(times)) / 3600
        dollars = hours * scaling_table.CHIPS[result["chip"]].dollars
        rows.append(
            [
                *(result["chip"], step["model"], "yes" if step["recompute"] else "no"),
                *(f"{step['batch']} x {step['length']}", largest_batch(kind) or "-"),
                " / ".join(f"{1e3 * seconds:.1f}" if seconds else "-" for seconds in times),
                f"{step['batch'] * chip.devices / max(times):,.0f}",
                *(f"{hours:,.0f}", scaling_table.duration(hours / 64), f"{dollars:,.0f}"),
            ]
        )
    header = (
        "chip | model | recomputed | batch | largest batch | ms at peak: products / traffic"
        " | examples/s of a chip | hours of a chip | on 64 chips | $"
    )
    return table(header, rows)


def on_all_chips(results: Iterable[Result], settings: ReportSettings) -> list[str]:
    """The table of largest batches and minimum hours on chips for which no whole model was compiled.

    A step needs nearly the same memory on all TPUs, and its products have the same number of operations.

    Args:
      results: results of `check`.
      settings: what is trained.
    """
    rows = []
    for kind in whole_models(results):
        if not largest_batch(kind) or kind[0]["least_effort"]:
            continue
        step = kind[-1]["step"]
        flops = settings.num_examples * kind[-1]["product_flops"] / step["batch"]
        cells = []
        for name in TPUS:
            seconds, _ = roofline(name, flops / CHIPS[name].devices, 0)
            cells.append(f"{largest_batch(kind, name):,} / {seconds / 3600:,.0f}")
        rows.append([step["model"], "yes" if step["recompute"] else "no", *cells])
    return table(f"model | recomputed | {' | '.join(TPUS)}", rows)


def main(settings: ReportSettings) -> None:
    """Prints Markdown."""
    lines = pathlib.Path(settings.input_file).read_text().splitlines()
    results = list(map(json.loads, lines))
    broken = check.broken_rules(results)
    pins = pathlib.Path(__file__).with_name("requirements.txt").read_text().split()
    versions = [pin for pin in pins if pin.startswith(("jax==", "libtpu=="))]
    versions.append(f"tensorflow=={importlib.metadata.version('tensorflow')}")
    print(f"# Steps compiled for accelerators\n\nWith {', '.join(versions)}.\n")
    print("## Estimates\n\nComputed from the compiled program, not measured.\n")
    print("\n".join(estimates(results, settings)))
    print(f"\n{_ON_ALL_CHIPS}\n")
    print("\n".join(on_all_chips(results, settings)))
    print("\n## Programs\n\nIn the columns of chips: GB at the peak / reserved / of traffic.\n")
    print("\n".join(check.programs(results)))
    print("\n## Rules that are broken\n")
    print("\n".join(f"- {line}" for line in broken) or "None.")


if __name__ == "__main__":
    flags.run(main, ReportSettings, description=__doc__)
