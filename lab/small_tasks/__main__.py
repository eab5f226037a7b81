"""Fine-tunes a model on small tasks with several seeds, and, for comparison, random weights.

    python -m lab.small_tasks --model=runs/mine --data_dir=data --output_dir=small --num_runs=5
    python -m lab.small_tasks --model=runs/zh --data_dir=data --output_dir=small_zh --random --tasks=chinese

After each task it writes results.json and table.md to --output_dir. A finished run is not repeated, and an
interrupted one is continued, so the same command continues after a kill. If a run fails, the others are still made.

--data_dir contains glue/ (parts of large tasks in glue_partial/), squad/{train,dev}-v1.1.json, race/,
tagging/{wnut17,msra_zh}/{train,dev}.conll, chinese/ and packages/ (from demo.py), as far as the tasks need
them. Without SQuAD's training file, its development file is cut by article.
"""

import dataclasses
import itertools
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
from lab.small_tasks.tasks import GROUPS, TASKS, facts_of_model

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
    program_flags: str = setting(
        "", 'Further flags of all programs, as "--learning_rate=1e-4 --num_train_epochs=5".'
    )

    def __post_init__(self):
        super().__post_init__()
        if unknown := [name for name in self.chosen if name not in TASKS]:
            known = ", ".join([*GROUPS, *TASKS])
            self.refuse("tasks", f"names {unknown[0]!r}; known are {known}")

    @property
    def chosen(self) -> list[str]:
        """The names in --tasks, where a group means all of its tasks."""
        names = [GROUPS.get(name, [name]) for name in self.tasks.split(",")]
        return list(dict.fromkeys(itertools.chain.from_iterable(names)))


def fine_tune(
    settings: SmallTasksSettings, folder: pathlib.Path, name: str, start: Mapping, most: int
) -> None:
    """Makes the runs of a task in a folder, or completes them; the program's output is in log.txt.

    `start` has the flags of the initial weights, and `most` is their maximum number of tokens.

    Raises:
      UserError: data is missing, the program fails, or the folder has runs with other flags.
    """
    task = TASKS[name]
    paths = task.files(pathlib.Path(settings.data_dir).resolve(), folder.parent / "data")
    length = min(task.max_seq_length, most)
    flags = {
        flag: int(value * length) if isinstance(value, float) else value
        for flag, value in task.flags.items()
    }
    # A single run would be written to the folder itself.
    one = {"output_dir": folder / f"seed_{settings.seed}"}
    several = {"output_dir": folder, "num_runs": settings.num_runs}
    values = {
        **flags,
        **paths,
        **start,
        "max_seq_length": length,
        "num_train_epochs": task.num_train_epochs,
        "eval_batch_size": 128,
        "seed": settings.seed,
        **(several if settings.num_runs > 1 else one),
    }
    command = [task.program, *(f"--{flag}={value}" for flag, value in values.items())]
    command += shlex.split(settings.program_flags)
    print(f"$ python {shlex.join(command)}", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log.txt"
    with log.open("a") as output:
        options = {"cwd": _ROOT, "stdout": output, "stderr": subprocess.STDOUT}
        process = subprocess.Popen([sys.executable, *command], **options)
        try:
            process.wait()
        finally:
            process.terminate()  # it then writes a checkpoint
            process.wait()
    if process.returncode:
        lines = log.read_text(errors="replace").strip().splitlines() or [""]
        raise UserError(f"{task.program} failed: {lines[-1][:300]} ({log})")


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
    """Makes all runs, and writes the results after each task."""
    folder, model = pathlib.Path(settings.output_dir).resolve(), settings.model
    if ":" not in model:  # not a name on the hub
        model = str(pathlib.Path(model).resolve())
    # In another process, so that TensorFlow takes no memory in this one while others train.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        facts = pool.submit(facts_of_model, model).result()
    starts = {"model": {"init_checkpoint": model}}
    if settings.random:
        config_file = folder / "random.json"
        files.write_bytes(str(config_file), json.dumps(facts["config"], indent=1).encode())
        starts["random"] = {"albert_config_file": config_file, **facts["flags"]}
    about = {"model": model, "commit": commit("."), "processor": processor_name()}
    most, failed = facts["config"]["max_position_embeddings"], []
    for name in settings.chosen:
        try:
            for kind, start in starts.items():
                fine_tune(settings, folder / "runs" / name / kind, name, start, most)
        except UserError as error:
            failed.append(f"{name}: {error}")
            print(f"FAILED {failed[-1]}", file=sys.stderr, flush=True)
        print("\n".join(write(folder, about)))
    if failed:
        raise UserError(f"{len(failed)} tasks failed; the first: {failed[0]}")


if __name__ == "__main__":
    flags.run(main, SmallTasksSettings, description=__doc__)
