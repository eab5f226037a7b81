r"""Folds and distills one teacher into many sizes with equal text: Tables 3 and 4 of the paper on a trained model.

    python -m lab.fold --teacher=all-MiniLM-L6-v2 --data_dir=data --text_dir=work/fold --work_dir=work/sizes

--text_dir has train.txt and held_out.txt of `lab.fold.text`. Each size and seed is one entry of --results_file; a
finished one is not repeated, and an interrupted one is continued, so the same command continues after a kill.
"""

import csv
import dataclasses
import datetime
import itertools
import json
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from albert_tf.core import files, flags
from albert_tf.core.settings import Settings, setting
from lab import machine, real_weights

EMBEDDING_SIZES, STRATEGIES = (64, 128, 256, 384), ("all", "attention", "ffn", "none")
GROUPS = (2, 3, 6)
DECIDING = (
    "128-all",
    "256-all",
    "384-all",
    "128-attention",
    "128-ffn",
    "128-none",
    "384-none",
    "128-all-3",
)
_SST2_EXAMPLES = 5_000  # of the training set, for the classifier of frozen vectors
_TRAINING = {
    "mixed_precision": "mixed_bfloat16",
    "teacher_precision": "mixed_bfloat16",
    "train_batch_size": 64,
    "learning_rate": 7e-4,
    "save_checkpoints_steps": 100,
    "log_every_steps": 40,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SizesSettings(Settings):
    """The teacher, the data, and which sizes are run."""

    teacher: str = setting("", "Model to fold.", required=True, input_path=True)
    data_dir: str = setting("", "Folder with glue/.", required=True, input_path=True)
    text_dir: str = setting("", "Folder with train.txt and held_out.txt.", required=True)
    work_dir: str = setting("runs/sizes", "Folder of models and runs.")
    results_file: str = setting("docs/results/data/fold_sizes.json", "JSON file of the results.")
    num_train_steps: int = setting(240, "Steps of distillation, of 64 texts each.", minimum=20)
    seeds: str = setting("1", "Seeds, separated by commas.")
    cells: str = setting(
        "", "Sizes such as 128-all; empty means all, for later seeds the deciding."
    )


def all_cells() -> list[str]:
    """Names of all sizes, those that decide a claim first: E, what is shared, and groups if there are several."""
    names = [f"{e}-{strategy}" for e, strategy in itertools.product(EMBEDDING_SIZES, STRATEGIES)]
    names += [f"128-all-{groups}" for groups in GROUPS]
    return sorted(names, key=lambda name: name not in DECIDING)


def _chosen(settings: SizesSettings) -> Iterator[tuple[str, int]]:
    """Sizes and seeds in the order of their runs."""
    named = [name for name in settings.cells.split(",") if name]
    for number, seed in enumerate(map(int, settings.seeds.split(","))):
        yield from ((name, seed) for name in named or (DECIDING if number else all_cells()))


def _command(program: str, *arguments: str, **values: object) -> list[str]:
    options = [f"--{name}={value}" for name, value in values.items()]
    return [sys.executable, "-m", "albert_tf.command", program, *arguments, *options]


def distilled(settings: SizesSettings, cell: str, seed: int) -> pathlib.Path:
    """The run of a size, which is folded, and distilled until it is finished."""
    embedding_size, strategy, *groups = cell.split("-")
    folder = pathlib.Path(settings.work_dir) / cell
    folded, run, text = folder / "folded", folder / f"seed_{seed}", pathlib.Path(settings.text_dir)
    sizes = {"embedding_size": embedding_size, "share_parameters": strategy}
    sizes["num_hidden_groups"] = (groups or ["1"])[0]
    fold = _command("fold", settings.teacher, output_dir=folded, **sizes)
    distill = _command(
        "distill",
        teacher=settings.teacher,
        init_checkpoint=folded,
        input_file=text / "train.txt",
        eval_file=text / "held_out.txt",
        output_dir=run,
        seed=seed,
        num_train_steps=settings.num_train_steps,
        num_warmup_steps=settings.num_train_steps // 12,
        eval_every_steps=settings.num_train_steps,
        **_TRAINING,
    )
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"seed_{seed}.log").open("a") as log:
        for command, result in (fold, folded / "config.json"), (distill, run / "results.json"):
            if not result.exists():
                subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=True)
    return run


class Tasks:
    """STS-B without training on it, and SST-2 by a linear classifier on frozen vectors."""

    def __init__(self, data_dir: str):
        self._stsb = {"dev": real_weights.read_data(data_dir)["dev"]}
        self._sst2 = [self._sentences(data_dir, f"{name}.tsv") for name in ("train", "dev")]

    @staticmethod
    def _sentences(data_dir: str, name: str) -> tuple[list[str], list[str]]:
        path = pathlib.Path(data_dir) / "glue" / "SST-2" / name
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
        return [row[0] for row in rows[:_SST2_EXAMPLES]], [row[1] for row in rows[:_SST2_EXAMPLES]]

    def scores(self, path: str) -> dict[str, float]:
        """Spearman's correlation, and accuracy in percent."""
        from sklearn.linear_model import LogisticRegression

        from albert_tf import load_predictor

        embed = load_predictor(path).embed
        (texts, labels), (dev_texts, dev_labels) = self._sst2
        classifier = LogisticRegression(max_iter=1000, C=10).fit(np.asarray(embed(texts)), labels)
        sst2 = classifier.score(np.asarray(embed(dev_texts)), dev_labels)
        stsb = real_weights.scores(embed, self._stsb)["dev"]
        return {"stsb": 100 * stsb, "sst2": 100 * sst2}


def main(settings: SizesSettings) -> None:
    """Runs every size and seed that is not finished, and adds its numbers to the results."""
    path, tasks = pathlib.Path(settings.results_file), Tasks(settings.data_dir)
    content: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"runs": []}
    content |= {"steps": settings.num_train_steps, "settings": _TRAINING}
    if "teacher" not in content:
        content["teacher"] = tasks.scores(settings.teacher)
    done = {(run["cell"], run["seed"]) for run in content["runs"]}
    for cell, seed in _chosen(settings):
        if (cell, seed) in done:
            continue
        folder = distilled(settings, cell, seed)
        found = files.read_json(str(folder / "results.json"))
        evaluation = found["eval"]
        last = max(int(name[6:]) for name in evaluation if name.startswith("error_"))
        entry = {
            "cell": cell,
            "seed": seed,
            "parameters": found["num_parameters"],
            "error": evaluation[f"error_{last}"],
            "vector_cosine": evaluation["vector_cosine"],
            **tasks.scores(str(folder)),
            "seconds": found["seconds"],
            "made": {
                "date": f"{datetime.date.today()}",
                "commit": machine.commit(".", short=True),
                "processor": machine.processor_name(),
            },
        }
        content["runs"].append(entry)
        files.write_bytes(str(path), files.json_bytes(content))
        print({name: entry[name] for name in ("cell", "seed", "error", "stsb", "sst2")}, flush=True)
        for checkpoints in folder.glob("checkpoints"):
            shutil.rmtree(checkpoints)


if __name__ == "__main__":
    flags.run(main, SizesSettings, description=__doc__)
