"""Fine-tunes a model on small tasks with several seeds: here, in transformers (PyTorch), and from random weights.

    python -m lab.fine_tuning --model=minilm --data_dir=data --torch_python=peers/bin/python --work_dir=runs/both
    python -m lab.fine_tuning --model=models/albert-minilm-l6 --data_dir=data --sides=torch,random \\
        --torch_python=peers/bin/python --work_dir=runs/both

Each finished run is added to --output_file; a run that is in the file is not repeated. `lab.fine_tuning.report` writes
the tables of docs/results/real_weights.md and fold.md from it, and a plot. --data_dir contains glue/, glue_partial/
(parts of large tasks), squad/dev-v1.1.json, which is cut into 40 articles for training and 8 for scoring, and
tagging/wnut17/. All sides compute with the processors that they find: `taskset -c 1` with OMP_NUM_THREADS=1 makes the
processor times comparable.
"""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from albert_tf.core import files, flags
from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings, setting
from albert_tf.training.settings import PRECISIONS
from lab import machine

_ROOT = pathlib.Path(__file__).parents[2]
SIDES = ("here", "torch", "random")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BothSettings(Settings):
    """The weights, the data, and the runs to make."""

    model: str = setting("", "Folder of a model.", required=True, input_path=True)
    data_dir: str = setting("", "Folder of the data.", required=True, input_path=True)
    torch_python: str = setting(
        "", "Python of an environment with torch, transformers and scikit-learn."
    )
    work_dir: str = setting("", "Folder of parts of the data and of the runs.", required=True)
    output_file: str = setting("docs/results/data/fine_tuning.json", "JSON file of all runs.")
    tasks: str = setting("CoLA,STS-B,SST-2,MRPC,RTE", "Tasks, separated by commas.")
    seeds: str = setting("1", "Seeds, separated by commas.")
    sides: str = setting("here,torch", f"Of {', '.join(SIDES)} (random weights, in torch).")
    learning_rate: float = setting(1e-4, "Peak learning rate.", minimum=0)
    epochs: float = setting(0.0, "Epochs; 0 means those of the task.", minimum=0)
    mixed_precision: str = setting("float32", "Precision of the side here.", choices=PRECISIONS)

    def __post_init__(self):
        super().__post_init__()
        if unknown := set(self.tasks.split(",")) - TASKS.keys():
            self.refuse("tasks", f"names {min(unknown)}; known are {', '.join(TASKS)}")
        if self.sides != "here" and not self.torch_python:
            self.refuse("torch_python", "is required for --sides=torch and random")


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
    program: str = "run_classifier.py"
    flags: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    in_percent: bool = False  # whether the program's metrics are percentages


_TWO_WAY = ("entailment", "not_entailment")
_NLI = ("contradiction", "entailment", "neutral")
_PART: Mapping[str, Any] = {"folder": "glue_partial", "epochs": 1.0}
TASKS = {
    "CoLA": Task(("matthews", "accuracy"), (1, 3), header=False, epochs=1.0),
    "STS-B": Task(("pearson", "spearman"), (9, 7, 8), (), epochs=1.0),
    "SST-2": Task(("accuracy",), (1, 0), epochs=1.0),
    "SST-2-2400": Task(("accuracy",), (1, 0), epochs=1.0, most_examples=2_400),
    "MRPC": Task(("accuracy", "f1"), (0, 3, 4)),
    "RTE": Task(("accuracy",), (3, 1, 2), _TWO_WAY),
    "WNUT": Task(
        ("f1", "precision", "recall"),
        (),
        (),  # its labels are those of the file
        folder="tagging",
        dev="dev.conll",
        program="run_tagger.py",
    ),
    "QNLI": Task(("accuracy",), (3, 1, 2), _TWO_WAY, **_PART),
    "MNLI": Task(("accuracy",), (-1, 8, 9), _NLI, dev="dev_matched.tsv", **_PART),
    "SQuAD": Task(
        ("f1", "exact_match"),
        (),
        (),
        dev="dev.json",
        epochs=1.0,
        program="run_squad.py",
        flags={"version": "1.1", "max_seq_length": 256, "doc_stride": 128},
        in_percent=True,
    ),
}


def data_of(name: str, settings: BothSettings) -> pathlib.Path:
    """The folder of a task's data; with fewer training examples, a copy with the first of them."""
    task = TASKS[name]
    if name == "SQuAD":
        content = files.read_json(str(pathlib.Path(settings.data_dir, "squad", "dev-v1.1.json")))
        folder = pathlib.Path(settings.work_dir, "data", name)
        for part, articles in {"train": content["data"][:40], "dev": content["data"][40:]}.items():
            path = str(folder / f"{part}.json")
            files.write_bytes(path, json.dumps({**content, "data": articles}).encode())
        return folder
    folder_name = {"WNUT": "wnut17", "SST-2-2400": "SST-2"}.get(name, name)
    source = pathlib.Path(settings.data_dir, task.folder, folder_name)
    if not task.most_examples:
        return source
    folder = pathlib.Path(settings.work_dir, "data", name)
    lines = (source / "train.tsv").read_bytes().splitlines(keepends=True)
    files.write_bytes(
        str(folder / "train.tsv"), b"".join(lines[: task.header + task.most_examples])
    )
    files.write_bytes(str(folder / task.dev), (source / task.dev).read_bytes())
    return folder


def command_here(name: str, seed: int, folder: pathlib.Path, settings: BothSettings) -> list[str]:
    """The command of this library; it evaluates once, at the end, as the other side does."""
    task = TASKS[name]
    data = data_of(name, settings)
    values = {
        "init_checkpoint": settings.model,
        **task.flags,
        "output_dir": folder,
        "seed": seed,
        "learning_rate": settings.learning_rate,
        "num_train_epochs": settings.epochs or task.epochs,
        "mixed_precision": settings.mixed_precision,
        "train_batch_size": 32,
        "eval_every_steps": 1_000_000,
        "save_checkpoints_steps": 1_000_000,
        "log_every_steps": 10,
    }
    if task.program == "run_classifier.py":
        values |= {"task_name": name.removesuffix("-2400"), "data_dir": data}
    else:
        train = "train" + pathlib.Path(task.dev).suffix
        values |= {"train_file": data / train, "eval_file": data / task.dev}
    words = [f"--{name}={value}" for name, value in values.items()]
    return [sys.executable, str(_ROOT / task.program), *words]


def command_in_torch(
    name: str, seed: int, folder: pathlib.Path, settings: BothSettings, *, is_random: bool
) -> list[str]:
    """The command of PyTorch's side, which reads its settings from a file."""
    about = {
        **dataclasses.asdict(TASKS[name]),
        "epochs": settings.epochs or TASKS[name].epochs,
        "data": str(data_of(name, settings)),
        "model": settings.model,
        "seed": seed,
        "learning_rate": settings.learning_rate,
        "output_dir": str(folder),
        "random": is_random,
    }
    files.write_bytes(str(folder / "settings.json"), json.dumps(about).encode())
    script = str(pathlib.Path(__file__).with_name("in_torch.py"))
    return [settings.torch_python, script, str(folder / "settings.json")]


def place_of(name: str, seed: int, side: str, settings: BothSettings) -> dict[str, Any]:
    """What tells a run from all others."""
    model = pathlib.Path(settings.model).name
    place = {"model": model, "task": name, "seed": seed, "side": side}
    place["learning_rate"] = settings.learning_rate
    if settings.epochs:
        place["epochs"] = settings.epochs
    if settings.mixed_precision != "float32" and side == "here":
        place["mixed_precision"] = settings.mixed_precision
    return place


def made(name: str, seed: int, side: str, settings: BothSettings) -> dict[str, Any]:
    """Makes a run; returns what is recorded: scores in percent; the processor time if one process made all of it."""
    place = place_of(name, seed, side, settings)
    parts = [f"{value:g}" if isinstance(value, float) else str(value) for value in place.values()]
    folder = pathlib.Path(settings.work_dir, "runs", *parts).resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    log_file = folder.with_name(f"{folder.name}.log")  # a name may be 0.0001
    is_whole = side != "here" or not folder.exists()  # not what an interruption has left
    if side == "here":
        command = command_here(name, seed, folder, settings)
    else:
        command = command_in_torch(name, seed, folder, settings, is_random=side == "random")
    with log_file.open("w") as log:
        process = subprocess.Popen(command, cwd=_ROOT, stdout=log, stderr=subprocess.STDOUT)
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.terminate()
            raise
    if status:
        raise UserError(f"{name}, {side}: failed; see {log_file}")
    results = files.read_json(str(folder / "results.json"))
    scale = 1 if TASKS[name].in_percent and side == "here" else 100
    scores = {}
    for key in TASKS[name].metrics:
        value = results["eval"][key]
        scores[key] = None if value is None else round(scale * value, 3)  # None: undefined
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    logged = [line for line in map(json.loads, lines) if line.get("split", "train") == "train"]
    seconds = round(usage.ru_utime + usage.ru_stime, 1)
    return {
        **place,
        "scores": scores,
        "steps": results["step"],
        "losses": [round(line["loss"], 4) for line in logged][:20],  # means of 10 steps
        **({"processor_seconds": seconds} if is_whole else {}),
        "commit": machine.commit(str(_ROOT), short=True),
    }


def main(settings: BothSettings) -> None:
    """Makes the runs that are not in --output_file, seed by seed."""
    path = pathlib.Path(settings.output_file)
    content = files.read_json(str(path)) if path.exists() else {"runs": []}
    content["processor"] = machine.processor_name()
    names = ("model", "task", "seed", "side", "learning_rate", "epochs", "mixed_precision")
    finished = [{key: run[key] for key in names if key in run} for run in content["runs"]]
    for seed in map(int, settings.seeds.split(",")):
        for name in settings.tasks.split(","):
            for side in settings.sides.split(","):
                if place_of(name, seed, side, settings) in finished:
                    continue
                run = made(name, seed, side, settings)
                print(json.dumps(run), flush=True)
                content["runs"].append(run)
                files.write_bytes(str(path), files.json_bytes(content))


if __name__ == "__main__":
    flags.run(main, BothSettings, description=__doc__)
