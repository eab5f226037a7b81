"""Prints the tables of docs/results/{finetuning,tagging,chinese}.md from the runs of lab/tools/finetuning_runs.sh.

python lab/tools/finetuning_table.py RUNS
"""

import argparse
import json
import pathlib
import statistics

from albert_tf.core.tables import table

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
    "wnut17": ["f1", "precision", "recall"],
    "msra_zh": ["f1", "precision", "recall"],
    "ChnSentiCorp": ["accuracy", "macro_f1"],
    "shopping": ["accuracy", "macro_f1"],
}


def finished_runs(folder: pathlib.Path) -> list[dict]:
    """The results in a folder of seeds, or of a single run."""
    paths = sorted(folder.glob("seed_*/results.json")) or folder.glob("results.json")
    return [json.loads(path.read_text()) for path in paths]


def cells(runs: list[dict], names: list[str]) -> tuple[str, str]:
    """Texts of two cells: median and range of each metric; number of seeds and seconds."""
    texts = []
    for name in names:
        values = sorted(run["eval"][name] for run in runs)
        digits = 1 if name in ("exact_match", "exact", "f1_threshold_0") or values[-1] > 1 else 3
        text = f"{statistics.median(values):.{digits}f}"
        if len(values) > 1:
            text += f" ({values[0]:.{digits}f} to {values[-1]:.{digits}f})"
        texts.append(text)
    seconds = statistics.fmean(run["seconds"] for run in runs)
    return "; ".join(texts), f"{len(runs)} x {seconds:.0f} s"


def main(folder: str) -> None:
    """Prints one row for each task."""
    rows = []
    for task, names in METRICS.items():
        runs_of_kind = [finished_runs(pathlib.Path(folder, task, kind)) for kind in KINDS]
        if not any(runs_of_kind):
            continue
        chance = next(filter(None, runs_of_kind))[0]["majority"].get("accuracy")
        numbers, times = zip(
            *(cells(runs, names) if runs else ("not run", "-") for runs in runs_of_kind),
            strict=True,
        )
        chance_cell = f"{chance:.3f}" if chance else "-"
        rows.append((task, ", ".join(names), chance_cell, *numbers, ", ".join(times)))
    if not rows:
        raise SystemExit(f"{folder}: no finished runs of lab/tools/finetuning_runs.sh")
    header = "task | metric | chance | pretrained | random weights | seeds, time of a run"
    print("\n".join(table(header, rows)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", help="folder of finished runs")
    main(**vars(parser.parse_args()))
