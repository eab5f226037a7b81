r"""Trains recipes of a small English model until a fixed held-out accuracy, and records the processor time of each.

    python -m lab.small_en.speedrun --work_dir=work --recipes=plain,two_layers --seeds=1

--work_dir is that of pretrain.sh, which has prepared the text, the vocabulary and the held-out records. The rule, the
recipes and their results are in lab/speedrun.md, whose table this program writes again after each run.
"""

import dataclasses
import datetime
import itertools
import json
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import psutil

from albert_tf.core import files, flags
from albert_tf.core.settings import Settings, setting
from albert_tf.core.tables import table
from albert_tf.tasks.settings import as_flag
from lab.machine import commit, processor_name
from lab.pages import with_table

_FOLDER = pathlib.Path(__file__).parent
_ROOT = _FOLDER.parents[1]
PAGE, RESULTS = _ROOT / "lab/speedrun.md", _FOLDER / "speedrun.json"
RECIPES = _FOLDER / "speedrun.toml"
_FIRST_STEP, _REFERENCE_STEP = 10, 40  # the steps before include start-up and compilation


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpeedrunSettings(Settings):
    """Which recipes are trained, and where."""

    work_dir: str = setting("", "Work folder of pretrain.sh.", required=True, input_path=True)
    recipes: str = setting(
        "", "Names in speedrun.toml, separated by commas; empty only writes the page."
    )
    seeds: str = setting("1", "Seeds, separated by commas.")


def recipe_of(declared: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A recipe with the values of the recipe that it changes; `phases` are replaced as a whole."""
    own = declared["recipes"][name]
    base = recipe_of(declared, own["changes"]) if "changes" in own else declared["common"]
    groups = {key: {**base[key], **own.get(key, {})} for key in ("model", "records", "training")}
    return groups | {key: own.get(key, base[key]) for key in ("phases", "initial_values")}


def as_flags(values: Mapping[str, Any]) -> list[str]:
    """Settings as they are written on a command line."""
    return [as_flag(name, value) for name, value in values.items()]


def records(work: pathlib.Path, text: str, values: Mapping[str, Any]) -> pathlib.Path:
    """The folder of records of a text with these settings; they are made if they do not exist."""
    folder = work / "speedrun_records" / "_".join([text, *map(str, values.values())])
    if not (folder / "metadata.json").exists():  # it is written last
        command = [sys.executable, "-m", "data_prep.create_pretraining_data"]
        paths = {"input_file": work / f"{text}.txt", "spm_model_file": work / "spiece.model"}
        command += as_flags({**paths, "output_dir": folder, **values})
        subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.DEVNULL)
    return folder


def progress(command: list[str], folder: pathlib.Path) -> Iterator[tuple[float, dict[str, Any]]]:
    """Runs a pretraining; yields the processor seconds so far with each line of its logs. Closing it ends the run."""
    logs = {folder / name: 0 for name in ("metrics.jsonl", "eval_metrics.jsonl")}
    with (
        open(f"{folder}.log", "w") as output,
        subprocess.Popen(command, cwd=_ROOT, stdout=output, stderr=output) as run,
    ):
        try:
            used, has_ended = 0.0, False
            while not has_ended:
                has_ended = run.poll() is not None  # its last lines are read after its end
                if not has_ended:
                    used = sum(psutil.Process(run.pid).cpu_times()[:2])
                for path, read in logs.items():
                    lines = path.read_text().splitlines() if path.exists() else []
                    logs[path] = len(lines)
                    for line in lines[read:]:
                        yield used, json.loads(line)
                time.sleep(0.2)
            if run.returncode:
                sys.exit(f"{' '.join(command)} failed; see {output.name}")
        finally:
            run.terminate()


class Trial:
    """One recipe with one seed, in a folder of its own, which is emptied."""

    def __init__(self, work: pathlib.Path, declared: Mapping[str, Any], name: str, seed: int):
        self.work, self.declared, self.name, self.seed = work, declared, name, seed
        self.recipe = recipe_of(declared, name)
        self.folder = work / "speedrun" / f"{name}-{seed}"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def command(self, number: int) -> list[str]:
        """The pretraining of a phase; each phase but the first continues the model of the one before."""
        phase = self.recipe["phases"][number]
        of_text = {**self.recipe["records"], **phase.get("records", {})}
        # Every recipe is evaluated on the same masks; only the shape of the records is that of the training.
        held_out = {**of_text, "masking": "static", "masked_lm_prob": 0.15, "dupe_factor": 1}
        values = {
            **self.declared["run"],
            **self.recipe["training"],
            **phase.get("training", {}),
            "num_train_steps": phase.get("steps", 1_000_000),
            "seed": self.seed,
            "albert_config_file": self.sizes(number),
            "input_file": records(self.work, "train", of_text),
            "eval_file": records(self.work, "held_out", held_out),
            "spm_model_file": self.work / "spiece.model",
            "output_dir": self.folder / str(number),
        }
        if number:
            before = self.folder / str(number - 1) / "model"
            values |= {"init_checkpoint": before, "warm_start_from_shallower": True}
        elif self.recipe["initial_values"]:
            values |= {"init_checkpoint": self.folder / "initial"}
        return [sys.executable, "run_pretraining.py", *as_flags(values)]

    def sizes(self, number: int) -> pathlib.Path:
        """The file with the model's configuration in a phase."""
        path = self.folder / f"{number}.json"
        values = {**self.recipe["model"], **self.recipe["phases"][number].get("model", {})}
        path.write_text(json.dumps(values))
        return path

    def compute_initial_values(self) -> float:
        """Writes the model with which the recipe begins, if it is not random; returns the processor seconds."""
        if not self.recipe["initial_values"]:
            return 0.0
        values = {
            "albert_config_file": self.sizes(0),
            "input_file": self.work / "train.txt",
            "spm_model_file": self.work / "spiece.model",
            "output_dir": self.folder / "initial",
            "parts": self.recipe["initial_values"],
            "seed": self.seed,
        }
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "lab.small_en.initial_values", *as_flags(values)],
            cwd=_ROOT,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return sum(after[:2]) - sum(before[:2])

    def run(self) -> dict[str, Any]:
        """Trains until the target or the limit; returns the seconds, the steps and the curve of (seconds, accuracy)."""
        target, limit = self.declared["target"], self.declared["limit_seconds"]
        used, steps, curve = self.compute_initial_values(), 0, [(0.0, 0.0)]
        for number in range(len(self.recipe["phases"])):
            last = None
            for seconds, line in progress(self.command(number), self.folder / str(number)):
                is_evaluation = "learning_rate" not in line
                if is_evaluation:
                    curve.append((round(used, 1), line["masked_lm_accuracy"]))
                elif last is not None:  # neither start-up nor evaluations count
                    used += seconds - last
                last, done = seconds, steps + line["step"]
                if curve[-1][1] >= target or used > limit:
                    return {"steps": done, "seconds": crossing(curve, target), "curve": curve}
            steps = done
        raise AssertionError("the last phase has no end")


def reference_step(work: pathlib.Path, declared: Mapping[str, Any]) -> float:
    """Processor seconds of a training step of `plain`, measured on this machine now."""
    trial = Trial(work, declared, "plain", 0)
    command = [*trial.command(0), f"--stop_after_steps={_REFERENCE_STEP}", "--do_eval=false"]
    times = {line["step"]: seconds for seconds, line in progress(command, trial.folder / "0")}
    return (times[_REFERENCE_STEP] - times[_FIRST_STEP]) / (_REFERENCE_STEP - _FIRST_STEP)


def crossing(curve: list[tuple[float, float]], target: float) -> float | None:
    """Where the curve first reaches the target, linear between its points; None if it does not."""
    for (left, low), (right, high) in itertools.pairwise(curve):
        if high >= target:
            return left + (right - left) * (target - low) / (high - low)
    return None


def page_table(declared: Mapping[str, Any], results: list[dict[str, Any]]) -> list[str]:
    """A row for each recipe that was run: its change, and its cost in steps of `plain`, the median of its seeds."""
    rows = []
    for name, recipe in declared["recipes"].items():
        runs = [each for each in results if each["recipe"] == name]
        costs = [each["seconds"] and each["seconds"] / each["reference_step"] for each in runs]
        reached = sorted(cost for cost in costs if cost)
        if not runs:
            continue
        best = max(accuracy for each in runs for _, accuracy in each["curve"])
        cost, last = f"not reached ({best:.1%})", runs[-1]
        if len(reached) == len(runs):
            cost = f"{statistics.median(reached):,.0f}"
        spread = f"{reached[0]:,.0f} to {reached[-1]:,.0f}" if len(reached) > 1 else ""
        row = (f"`{name}`", recipe["what"], cost, spread, len(runs), last["date"], last["commit"])
        rows.append(row)
    header = (
        "recipe | what it changes | reference steps | least to greatest | seeds | date | commit"
    )
    return table(header, rows)


def main(settings: SpeedrunSettings) -> None:
    """Runs the trials one after the other; after each, writes the results and the page's table."""
    declared = tomllib.loads(RECIPES.read_text())
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    work = pathlib.Path(settings.work_dir).absolute()
    reference = round(reference_step(work, declared), 3) if settings.recipes else 0.0
    for name in filter(None, settings.recipes.split(",")):
        for seed in map(int, settings.seeds.split(",")):
            about = {"recipe": name, "seed": seed, "date": f"{datetime.date.today()}"}
            about |= {"commit": commit(str(_ROOT), short=True), "processor": processor_name()}
            about["reference_step"] = reference
            results.append(about | Trial(work, declared, name, seed).run())
            lines = ",\n".join(map(json.dumps, results))
            files.write_bytes(str(RESULTS), f"[\n{lines}\n]\n".encode())
    page = with_table(PAGE.read_text(), "recipes", page_table(declared, results))
    files.write_bytes(str(PAGE), page.encode())


if __name__ == "__main__":
    flags.run(main, SpeedrunSettings, description=__doc__)
