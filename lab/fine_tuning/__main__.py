r"""Fine-tunes the same weights on the same data in transformers (PyTorch) and here, so that a fault would be seen.

    python -m lab.fine_tuning --model=minilm --data_dir=data --torch_python=peers/bin/python --work_dir=runs/both

Each finished run is added to --output_file, from which docs/results/real_weights.md has its table; a run that is in the
file is not repeated. --data_dir is that of `lab.small_tasks`. Both sides compute with the processors that they find, so
`taskset -c 1` with OMP_NUM_THREADS=1 makes the processor times comparable.
"""

import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from albert_tf.core import files, flags, tables
from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings, setting
from lab import machine

_ROOT = pathlib.Path(__file__).parents[2]
SIDES = ("here", "torch")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BothSettings(Settings):
    """The weights, the data, and the runs to make."""

    model: str = setting("", "Folder of a BERT.", required=True, input_path=True)
    data_dir: str = setting("", "Folder of the data.", required=True, input_path=True)
    torch_python: str = setting(
        "", "Python of an environment with torch, transformers and scikit-learn."
    )
    work_dir: str = setting("", "Folder of parts of the data and of the runs.", required=True)
    output_file: str = setting("docs/results/data/fine_tuning.json", "JSON file of all runs.")
    tasks: str = setting("CoLA,STS-B,SST-2,MRPC,RTE", "Tasks, separated by commas.")
    seeds: str = setting("1", "Seeds, separated by commas.")
    sides: str = setting(",".join(SIDES), f"Of {' and '.join(SIDES)}.")
    learning_rate: float = setting(1e-4, "Peak learning rate.", minimum=0)
    here_flags: str = setting("", "Further flags of the program here, separated by spaces.")

    def __post_init__(self):
        super().__post_init__()
        if unknown := set(self.tasks.split(",")) - TASKS.keys():
            self.refuse("tasks", f"names {min(unknown)}; known are {', '.join(TASKS)}")
        if "torch" in self.sides and not self.torch_python:
            self.refuse("torch_python", "is required for --sides=torch")


@dataclasses.dataclass(frozen=True)
class Task:
    """A task; the columns are those of the label and of the texts, from which PyTorch's side reads by itself."""

    metrics: tuple[str, ...]
    columns: tuple[int, ...] = ()  # -1 is the last
    labels: tuple[str, ...] = ("0", "1")  # in the order of the outputs; none for a score
    header: bool = True
    folder: str = "glue"
    epochs: float = 2.0
    most_examples: int = 0  # of the training data; 0 takes all
    dev: str = "dev.tsv"


_TWO_WAY = ("entailment", "not_entailment")
_NLI = ("contradiction", "entailment", "neutral")
_PART: Mapping[str, Any] = {"folder": "glue_partial", "epochs": 1.0}
TASKS = {
    "CoLA": Task(("matthews", "accuracy"), (1, 3), header=False, epochs=1.0),
    "STS-B": Task(("pearson", "spearman"), (9, 7, 8), (), epochs=1.0),
    "SST-2": Task(("accuracy",), (1, 0), epochs=1.0, most_examples=2_400),
    "MRPC": Task(("accuracy", "f1"), (0, 3, 4)),
    "RTE": Task(("accuracy",), (3, 1, 2), _TWO_WAY),
    "WNUT": Task(("f1", "precision", "recall"), folder="tagging", dev="dev.conll"),
    "QNLI": Task(("accuracy",), (3, 1, 2), _TWO_WAY, **_PART),
    "MNLI": Task(("accuracy",), (-1, 8, 9), _NLI, dev="dev_matched.tsv", **_PART),
}


def data_of(name: str, settings: BothSettings) -> pathlib.Path:
    """The folder of a task's data; with fewer training examples, a copy with the first of them."""
    task = TASKS[name]
    source = pathlib.Path(settings.data_dir, task.folder, "wnut17" if name == "WNUT" else name)
    if not task.most_examples:
        return source
    folder = pathlib.Path(settings.work_dir, "data", name)
    lines = (source / "train.tsv").read_bytes().splitlines(keepends=True)
    files.write_bytes(
        str(folder / "train.tsv"), b"".join(lines[: task.header + task.most_examples])
    )
    files.write_bytes(str(folder / task.dev), (source / task.dev).read_bytes())
    return folder


# --- The two sides ---


def command_here(name: str, seed: int, folder: pathlib.Path, settings: BothSettings) -> list[str]:
    """The command of this library; it evaluates once, at the end, as the other side does."""
    task, data = TASKS[name], data_of(name, settings)
    values = {
        "init_checkpoint": settings.model,
        "output_dir": folder,
        "seed": seed,
        "learning_rate": settings.learning_rate,
        "num_train_epochs": task.epochs,
        "train_batch_size": 32,
        "eval_every_steps": 1_000_000,
        "save_checkpoints_steps": 1_000_000,
        "log_every_steps": 10,
    }
    if name == "WNUT":
        program = "run_tagger.py"
        values |= {"train_file": data / "train.conll", "eval_file": data / task.dev}
    else:
        program = "run_classifier.py"
        values |= {"task_name": name, "data_dir": data}
    given = [f"--{name}={value}" for name, value in values.items()]
    return [sys.executable, str(_ROOT / program), *given, *settings.here_flags.split()]


def command_in_torch(
    name: str, seed: int, folder: pathlib.Path, settings: BothSettings
) -> list[str]:
    """The command of PyTorch's side, which reads its settings from a file."""
    about = {
        **dataclasses.asdict(TASKS[name]),
        "data": str(data_of(name, settings)),
        "model": settings.model,
        "seed": seed,
        "learning_rate": settings.learning_rate,
        "output_dir": str(folder),
    }
    files.write_bytes(str(folder / "settings.json"), json.dumps(about).encode())
    script = str(pathlib.Path(__file__).with_name("in_torch.py"))
    return [settings.torch_python, script, str(folder / "settings.json")]


def made(name: str, seed: int, side: str, settings: BothSettings) -> dict[str, Any]:
    """Makes a run; returns what is recorded of it: scores in percent, and the processor time of the whole process."""
    parts = (name, f"{settings.learning_rate:g}", str(seed), side)
    folder = pathlib.Path(settings.work_dir, "runs", *parts).resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    log_file = folder.with_suffix(".log")
    command = (command_here if side == "here" else command_in_torch)(name, seed, folder, settings)
    with log_file.open("w") as log:
        process = subprocess.Popen(command, cwd=_ROOT, stdout=log, stderr=subprocess.STDOUT)
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.terminate()
            raise
    if status:
        raise UserError(f"{name}, {side}: failed; see {log_file}")
    found = files.read_json(str(folder / "results.json"))
    scores = {key: round(100 * found["eval"][key], 3) for key in TASKS[name].metrics}
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    logged = [line for line in map(json.loads, lines) if line.get("split", "train") == "train"]
    return {
        **{"task": name, "seed": seed, "side": side, "learning_rate": settings.learning_rate},
        **({"flags": settings.here_flags} if settings.here_flags and side == "here" else {}),
        "scores": scores,
        "steps": found["step"],
        "losses": [round(line["loss"], 4) for line in logged][:20],  # means of 10 steps
        "processor_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "commit": machine.commit(str(_ROOT), short=True),
    }


# --- The table ---


def table_of(runs: list[dict[str, Any]]) -> list[str]:
    """A row for each task, rate and metric: medians with ranges of both sides, and their processor times."""
    rows = []
    places = sorted({(list(TASKS).index(run["task"]), run["learning_rate"]) for run in runs})
    for name, rate in ((list(TASKS)[place], rate) for place, rate in places):
        own = [run for run in runs if (run["task"], run["learning_rate"]) == (name, rate)]
        by_side = [[r for r in own if r["side"] == side and "flags" not in r] for side in SIDES]
        for metric in TASKS[name].metrics:
            scores = [[run["scores"][metric] for run in side] for side in by_side]
            difference = ""
            if all(scores):
                first, second = map(statistics.median, scores)
                difference = f"{first - second:+.1f}"
            times = [_median([r["processor_seconds"] for r in side], 0) for side in by_side]
            cells = [_median(side, 1) for side in scores]
            rows.append((name, f"{rate:g}", metric, *cells, difference, *times, len(scores[0])))
    header = (
        "task | rate | metric | here | transformers | difference | seconds here | there | seeds"
    )
    return tables.table(header, rows)


def _median(values: list[float], digits: int) -> str:
    if not values:
        return ""
    spread = f" ({min(values):.{digits}f} to {max(values):.{digits}f})" if len(values) > 1 else ""
    return f"{statistics.median(values):.{digits}f}{spread}"


def main(settings: BothSettings) -> None:
    """Makes the runs that are not in --output_file, seed by seed, and prints the table."""
    path = pathlib.Path(settings.output_file)
    content = files.read_json(str(path)) if path.exists() else {"runs": []}
    content["processor"] = machine.processor_name()
    names = ("task", "seed", "side", "learning_rate", "flags")
    known = {tuple(run.get(name, "") for name in names) for run in content["runs"]}
    for seed in map(int, settings.seeds.split(",")):
        for name in settings.tasks.split(","):
            for side in settings.sides.split(","):
                own = settings.here_flags if side == "here" else ""
                if (name, seed, side, settings.learning_rate, own) in known:
                    continue
                run = made(name, seed, side, settings)
                print(json.dumps(run), flush=True)
                content["runs"].append(run)
                files.write_bytes(str(path), files.json_bytes(content))
    print("\n".join(table_of(content["runs"])))


if __name__ == "__main__":
    flags.run(main, BothSettings, description=__doc__)
