"""Prints the table of docs/finetuning.md from the folders that docs/finetuning_runs.sh wrote.

python docs/finetuning_table.py RUNS
"""

import json
import pathlib
import sys

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


def cells(results: dict, names: list[str]) -> list[str]:
    """Median and spread of each metric, the number of runs, and the seconds of all."""
    runs = results.get("runs", [results])
    found = []
    for name in names:
        values = sorted(run["eval"][name] for run in runs)
        median, digits = values[len(values) // 2], 1 if values[-1] > 1.5 else 3
        spread = f" ({values[0]:.{digits}f} to {values[-1]:.{digits}f})" if len(runs) > 1 else ""
        found.append(f"{median:.{digits}f}{spread}")
    return [" / ".join(found), str(len(runs)), f"{results['seconds']:.0f} s"]


def main(folder: str) -> None:
    """One row a task."""
    print("| task | metric | chance | pretrained | random weights | seeds | time |")
    print("|---|---|---|---|---|---|---|")
    for task, names in METRICS.items():
        found = {}
        for kind in ("pretrained", "random"):
            path = pathlib.Path(folder, task, kind, "results.json")
            if path.exists():
                found[kind] = json.loads(path.read_text())
        if not found:
            continue
        rows = {kind: cells(results, names) for kind, results in found.items()}
        any_run = next(iter(found.values()))
        chance = any_run.get("runs", [any_run])[0]["chance"].get("accuracy")
        shown = [rows[kind][0] if kind in rows else "not run" for kind in ("pretrained", "random")]
        seeds = "/".join(row[1] for row in rows.values())
        times = " / ".join(row[2] for row in rows.values())
        said = f"{chance:.3f}" if chance else "-"
        print(f"| {task} | {' / '.join(names)} | {said} | {' | '.join(shown)} | {seeds} | {times} |")


if __name__ == "__main__":
    main(sys.argv[1])
