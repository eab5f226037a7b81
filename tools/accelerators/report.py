"""Prints what a file of results says: estimates of training, all compiled programs, and the rules that they break.

    python -m tools.accelerators.report --input_file=results.jsonl > table.md

An estimate is computed from the compiled program and the chip's published peaks, not measured: a step takes at least
the time of its products at the peak rate, and at least the time of its traffic at the peak bandwidth. Where no whole
model was compiled, its numbers are those of the line through two programs with fewer layers, because every layer of a
step costs the same.
"""

import collections
import dataclasses
import json
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from albert_tf.core import flags
from albert_tf.core.settings import Settings, setting
from albert_tf.core.tables import table
from albert_tf.model.config import AlbertConfig
from tools import scaling_table
from tools.accelerators import check
from tools.accelerators.chips import CHIPS, roofline

Result = Mapping[str, Any]

# What grows by the same amount with each layer, and with each example.
_LINEAR = ("peak_bytes", "product_flops", "formula_flops", "traffic")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportSettings(Settings):
    """The results, and what is trained."""

    input_file: str = setting("", "File of `check --output_file`.", required=True, input_path=True)
    num_train_steps: int = setting(125_000, "Steps.", minimum=1)
    train_batch_size: int = setting(4096, "Examples in a step.", minimum=1)


def whole_models(results: Iterable[Result]) -> list[dict[str, Any]]:
    """The results of whole models, and those that follow from two numbers of layers.

    Args:
      results: of `check`.

    Returns:
      Results with the additional key `layers`, which says what was compiled. Programs of the least effort are left
      out, because their traffic means nothing, and so are those that do not compile.
    """
    by_depth: dict[str, dict[int, Result]] = collections.defaultdict(dict)
    for result in results:
        if not result["least_effort"] and result.get("traffic"):
            step = result["step"]
            key = json.dumps([{**step, "num_layers": 0}, result["chip"]], sort_keys=True)
            by_depth[key][step["num_layers"]] = result
    found = []
    for results_of in by_depth.values():
        depths = sorted(results_of)
        if 0 in results_of:
            found.append({**results_of[0], "layers": "all"})
        elif len(depths) > 1:
            fewer, more = results_of[depths[0]], results_of[depths[-1]]
            depth = AlbertConfig.from_name(more["step"]["model"]).num_hidden_layers
            values = _on_line(fewer, more, depths[0], depths[-1], depth)
            step = {**more["step"], "num_layers": 0}
            found.append(
                {**more, **values, "step": step, "layers": f"{depths[0]} and {depths[-1]}"}
            )
    return found


def _on_line(first: Result, second: Result, at_first: int, at_second: int, at: int) -> dict:
    """The values at a place of the lines through two results."""
    share = (at - at_first) / (at_second - at_first)
    return {name: first[name] + share * (second[name] - first[name]) for name in _LINEAR}


def largest_batches(results: Iterable[Result]) -> Iterator[tuple[Result, int | None]]:
    """The result with most examples of each kind of step, and how many examples the line through two batches allows.

    Args:
      results: of `whole_models`.
    """
    kinds = collections.defaultdict(dict)
    for result in results:
        step = result["step"]
        key = json.dumps([{**step, "batch": 0}, result["chip"]], sort_keys=True)
        kinds[key][step["batch"]] = result
    for results_of in kinds.values():
        least, most = min(results_of), max(results_of)
        largest = None
        if least < most:
            growth = (results_of[most]["peak_bytes"] - results_of[least]["peak_bytes"]) / (
                most - least
            )
            limit = CHIPS[results_of[most]["chip"]].gigabytes * 1e9
            largest = most + int((limit - results_of[most]["peak_bytes"]) // growth)
        yield results_of[most], largest


def estimates(results: Iterable[Result], settings: ReportSettings) -> list[str]:
    """The table of estimates.

    Args:
      results: of `check`.
      settings: what is trained.
    """
    rows = []
    examples = settings.num_train_steps * settings.train_batch_size
    for result, largest in largest_batches(whole_models(results)):
        step, chip = result["step"], CHIPS[result["chip"]]
        if step["task"] != "pretraining" or step["replicas"] > 1 or step["packed"]:
            continue
        times = roofline(result["chip"], result["product_flops"], result["traffic"])
        hours = examples / (step["batch"] * chip.devices / max(times)) / 3600
        dollars = hours * scaling_table.CHIPS[result["chip"]].dollars
        rows.append(
            [
                *(result["chip"], step["model"], "yes" if step["recompute"] else "no"),
                *(result["layers"], f"{step['batch']} x {step['length']}"),
                *(f"{result['peak_bytes'] / 1e9:.2f}", largest or "-"),
                " / ".join(f"{1e3 * seconds:.1f}" for seconds in times),
                f"{step['batch'] * chip.devices / max(times):,.0f}",
                *(f"{hours:,.0f}", scaling_table.duration(hours / 64), f"{dollars:,.0f}"),
            ]
        )
    header = (
        "chip | model | recomputed | layers compiled | batch | peak GB | largest batch | ms at peak: products / traffic"
        " | examples/s of a chip | hours of a chip | on 64 chips | $"
    )
    return table(header, rows)


def main(settings: ReportSettings) -> None:
    """Prints Markdown."""
    lines = pathlib.Path(settings.input_file).read_text().splitlines()
    results = list(map(json.loads, lines))
    broken = check.broken_rules(results)
    print("## Estimates\n\nComputed from the compiled program, not measured.\n")
    print("\n".join(estimates(results, settings)))
    print("\n## Programs\n")
    print("\n".join(table(check.HEADER, check.rows_of(results))))
    print("\n## Rules that are broken\n")
    print("\n".join(f"- {line}" for line in broken) or "None.")


if __name__ == "__main__":
    flags.run(main, ReportSettings, description=__doc__)
