r"""Fine-tunes a model on small tasks with several seeds, and, for comparison, random weights.

    python -m lab.small_tasks --model=runs/mine --data_dir=data --output_dir=small --num_runs=5
    python -m lab.small_tasks --model=runs/zh --data_dir=data --output_dir=small_zh --random \
        --tasks=chinese --learning_rate=1e-4,MSRA=5e-3

After each task it writes results.json and table.md to --output_dir. A finished run is not repeated, and an
interrupted one is continued, so the same command continues after a kill. If a run fails, the others are still made.

--data_dir contains glue/ (parts of large tasks in glue_partial/), squad/{train,dev}-v1.1.json, race/,
tagging/{wnut17,msra_zh}/{train,dev}.conll, chinese/ and packages/ (from demo.py), as far as the tasks need
them. Without SQuAD's training file, its development file is split by article.
"""

import dataclasses
import json
import multiprocessing
import pathlib
import shlex
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from albert_tf.core import files, flags
from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings, setting
from lab.machine import commit, processor_name
from lab.report import small_tasks_table
from lab.small_tasks import data
from lab.small_tasks.tasks import GROUPS, TASKS, chosen

_PER_TASK = "One value for all tasks, TASK=VALUE for one, or several of these separated by commas"
_ROOT = pathlib.Path(__file__).parents[2]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmallTasksSettings(Settings):
    """The model, the tasks, and how it is fine-tuned."""

    model: str = setting(
        "",
        "The pretrained model: a folder of a model or run, or a checkpoint.",
        required=True,
    )
    data_dir: str = setting("", "Folder of the data.", required=True, input_path=True)
    output_dir: str = setting("", "Folder of runs and results.", required=True)
    tasks: str = setting(
        "english",
        f"Tasks, separated by commas; {' and '.join(GROUPS)} are groups: {', '.join(TASKS)}.",
    )
    num_runs: int = setting(3, "Number of seeds.", minimum=1)
    seed: int = setting(1, "The first seed.", minimum=0)
    random: bool = setting(False, "Whether to train also from random weights.")
    learning_rate: str = setting(
        "",
        f"Peak learning rate. {_PER_TASK}; a value for all leaves out tasks of entities, whose default is 5e-3 with"
        " LAMB. Other tasks have the default of their program.",
    )
    optimizer: str = setting("", f"Optimizer. {_PER_TASK}; see --learning_rate.")
    num_train_epochs: str = setting("", f"Number of epochs. {_PER_TASK}.")
    max_seq_length: str = setting("", f"Maximum number of tokens. {_PER_TASK}.")
    train_batch_size: int = setting(32, "Examples in a step.", minimum=1)
    program_flags: str = setting(
        "",
        'Further flags of all programs, as "--mixed_precision=mixed_bfloat16 --num_train_steps=20".',
    )

    def __post_init__(self):
        super().__post_init__()
        try:
            names = chosen(self.tasks)
        except KeyError as error:
            self.refuse("tasks", f"names {error}; known are {', '.join([*GROUPS, *TASKS])}")
        for flag in ("learning_rate", "optimizer", "num_train_epochs", "max_seq_length"):
            for name in _by_task(getattr(self, flag)).keys() - {"", *names}:
                self.refuse(flag, f"has a value for {name!r}, which is not in --tasks")
        for length in _by_task(self.max_seq_length).values():
            if not length.isdecimal():
                self.refuse("max_seq_length", f"must have whole numbers, got {length!r}")

    def value(self, flag: str, name: str, default: object, *, for_all: bool = True) -> str:
        """The value of a flag for a task; `for_all` says whether a value for all tasks is also for this one."""
        values = _by_task(getattr(self, flag))
        return values.get(name) or (for_all and values.get("")) or str(default or "")


def _by_task(text: str) -> dict[str, str]:
    """The values of a flag by task; "" is the value for all tasks."""
    pairs = (item.strip().rpartition("=") for item in text.split(",") if item.strip())
    return {name: value for name, _, value in pairs}


# --- Runs ---


class Runs:
    """The runs of a model in --output_dir."""

    def __init__(self, settings: SmallTasksSettings):
        self._settings = settings
        self._folder = pathlib.Path(settings.output_dir).resolve()
        path = self._folder / "model.json"
        self._about: dict[str, Any] = files.read_json(str(path)) if path.exists() else {}
        if settings.model and self._about.get("model") != settings.model:
            # In another process, so that TensorFlow takes no memory in this one while others train.
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                self._about = pool.submit(data.facts_of_model, settings.model).result()
            files.write_bytes(str(path), json.dumps(self._about).encode())
            config = json.dumps(self._about["config"], indent=1).encode()
            files.write_bytes(str(self._folder / "random.json"), config)

    def fine_tune(self, name: str, kind: str, data: Mapping[str, str]) -> None:
        """Makes the runs of a task that are not finished, from the model or, if `kind` is "random", random weights.

        Raises:
          UserError: the program fails, or the folder has runs with other flags.
        """
        task, folder = TASKS[name], self._folder / "runs" / name / kind
        values = self._flags(name, kind, data)
        first, number = self._settings.seed, self._settings.num_runs
        seeds = [folder / f"seed_{seed}" for seed in range(first, first + number)]
        self._check(folder, [task.program, *_as_flags(values), self._settings.program_flags])
        if not all((seed / "results.json").exists() for seed in seeds):
            # A single run would be written to the folder itself.
            several = {"output_dir": folder, "num_runs": number, "seed": first}
            single = {"output_dir": seeds[0], "seed": first}
            self._run(task.program, {**values, **(several if number > 1 else single)}, folder)

    def _flags(self, name: str, kind: str, data: Mapping[str, str]) -> dict[str, object]:
        """The flags of a task's program, without seeds and output folder."""
        task, settings = TASKS[name], self._settings
        most = min(task.max_seq_length, self._about["config"]["max_position_embeddings"])
        length = int(settings.value("max_seq_length", name, most))
        of_all = not task.optimizer
        values: dict[str, object] = {
            **task.flags,
            **data,
            **self._start(kind),
            "max_seq_length": length,
            **{flag: int(share * length) for flag, share in task.shares.items()},
            "learning_rate": settings.value(
                "learning_rate", name, task.learning_rate, for_all=of_all
            ),
            "optimizer": settings.value("optimizer", name, task.optimizer, for_all=of_all),
            "num_train_epochs": settings.value("num_train_epochs", name, task.epochs),
            "train_batch_size": settings.train_batch_size,
            "eval_batch_size": 128,
        }
        return {flag: value for flag, value in values.items() if value != ""}

    def _start(self, kind: str) -> dict[str, object]:
        if kind == "model":
            return {"init_checkpoint": self._settings.model}
        vocabulary = self._about["vocabulary"]
        flag = "vocab_file" if vocabulary.endswith(".txt") else "spm_model_file"
        start = {"albert_config_file": self._folder / "random.json", flag: vocabulary}
        cleaning = ("do_lower_case", "keep_accents")
        return {**start, **{name: str(self._about[name]).lower() for name in cleaning}}

    def _check(self, folder: pathlib.Path, command: list[str]) -> None:
        """Records the command of a folder; it must be the same when the runs are continued."""
        path = folder / "command.json"
        content = {"command": command}
        if path.exists() and files.read_json(str(path)) != content:
            raise UserError(
                f"{folder}: has runs with other flags ({path.name}); choose another --output_dir"
            )
        files.write_bytes(str(path), json.dumps(content, indent=1).encode())

    def _run(self, program: str, values: Mapping[str, object], folder: pathlib.Path) -> None:
        """Runs a program; its output is in log.txt."""
        command = [program, *_as_flags(values)]
        command += shlex.split(self._settings.program_flags)
        print(f"$ python {shlex.join(command)}", flush=True)
        log = folder / "log.txt"
        with log.open("a") as output:
            process = subprocess.Popen(
                [sys.executable, *command], cwd=_ROOT, stdout=output, stderr=subprocess.STDOUT
            )
            try:
                process.wait()
            finally:
                process.terminate()  # it then writes a checkpoint
                process.wait()
        if process.returncode:
            lines = log.read_text(errors="replace").strip().splitlines() or [""]
            raise UserError(f"{program} failed: {lines[-1][:300]} ({log})")


def _as_flags(values: Mapping[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in values.items()]


def write(folder: pathlib.Path, about: Mapping[str, Any]) -> list[str]:
    """Writes results.json and table.md of all finished runs; returns the lines of the table. Scores are in percent."""
    results: dict[str, dict[str, Any]] = {}
    for name, task in TASKS.items():
        for kind in ("random", "model"):
            for path in sorted((folder / "runs" / name / kind).glob("seed_*/results.json")):
                found = files.read_json(str(path))
                scale = 1 if task.in_percent else 100
                scores = {key: round(scale * value, 3) for key, value in found["eval"].items()}
                run = {"seed": int(path.parent.name.removeprefix("seed_")), "eval": scores}
                known = ("num_parameters", "step", "seconds", "collapsed")
                run |= {key: found[key] for key in known if key in found}
                results.setdefault(name, {"metrics": task.metrics}).setdefault(kind, []).append(run)
    content = json.dumps({**about, "tasks": results}, indent=1)
    files.write_bytes(str(folder / "results.json"), f"{content}\n".encode())
    lines = small_tasks_table(results)
    files.write_bytes(str(folder / "table.md"), ("\n".join(lines) + "\n").encode())
    return lines


def main(settings: SmallTasksSettings) -> None:
    """Makes all runs and baselines, and writes the results after each."""
    folder = pathlib.Path(settings.output_dir).resolve()
    data_dir, model = pathlib.Path(settings.data_dir).resolve(), settings.model
    if model and ":" not in model:  # not a name on the hub
        model = str(pathlib.Path(model).resolve())
    runs = Runs(dataclasses.replace(settings, model=model))
    kinds = ["model", "random"][: 1 + settings.random]
    about = {"model": model, "commit": commit("."), "processor": processor_name()}
    failed = []
    for name in chosen(settings.tasks):
        try:
            paths = TASKS[name].files(data_dir, folder / "data" / name)
            for kind in kinds:
                runs.fine_tune(name, kind, paths)
        except UserError as error:
            failed.append(f"{name}: {error}")
            print(f"FAILED {failed[-1]}", file=sys.stderr, flush=True)
        print("\n".join(write(folder, about)))
    if failed:
        raise UserError(f"{len(failed)} tasks failed; the first: {failed[0]}")


if __name__ == "__main__":
    flags.run(main, SmallTasksSettings, description=__doc__)
