"""Prints the table of docs/results/finetuning.md from the folders that tools/finetuning_runs.sh wrote.

python tools/finetuning_table.py RUNS
"""

import json
import pathlib
import statistics
import sys

KINDS = ("pretrained", "random")
METRICS = {
    "CoLA": ["matthews", "accuracy"],
    "SST-2": ["accuracy"],
    "MRPC": ["accuracy", "f1"],
    "RTE": ["accuracy"],
    "STS-B": ["pearson", "spearman"],
    "squad1.1": ["exact_match", "f1"],
    "squad2.0": ["exact", "f1", "f1_threshold_0"],
    "race": ["accuracy", "accuracy_middle", "accuracy_high"],
}


def finished_runs(folder: pathlib.Path) -> list[dict]:
    """Results of a folder of seeds, or of a single run."""
    paths = sorted(folder.glob("seed_*/results.json")) or [folder / "results.json"]
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def cells(runs: list[dict], names: list[str]) -> tuple[str, str]:
    """Median and range of each metric; number of seeds and seconds."""
    found = []
    for name in names:
        values = sorted(run["eval"][name] for run in runs)
        digits = 1 if name in ("exact_match", "exact", "f1_threshold_0") or values[-1] > 1 else 3
        text = f"{statistics.median(values):.{digits}f}"
        if len(values) > 1:
            text += f" ({values[0]:.{digits}f} to {values[-1]:.{digits}f})"
        found.append(text)
    return "; ".join(
        found
    ), f"{len(runs)} x {statistics.fmean(run['seconds'] for run in runs):.0f} s"


def main(folder: str) -> None:
    """One row a task."""
    print("| task | metric | chance | pretrained | random weights | seeds, time of a run |")
    print("|---|---|---|---|---|---|")
    for task, names in METRICS.items():
        found = {kind: finished_runs(pathlib.Path(folder, task, kind)) for kind in KINDS}
        if not any(found.values()):
            continue
        chance = next(runs for runs in found.values() if runs)[0]["chance"].get("accuracy")
        shown = {
            kind: cells(runs, names) if runs else ("not run", "-") for kind, runs in found.items()
        }
        numbers, times = zip(*shown.values(), strict=True)
        said = f"{chance:.3f}" if chance else "-"
        print(
            f"| {task} | {', '.join(names)} | {said} | {' | '.join(numbers)} | {', '.join(times)} |"
        )


if __name__ == "__main__":
    main(sys.argv[1])
