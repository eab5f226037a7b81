"""Muon, LAMB and AdamW side by side: the same steps, data and seed, each with several learning rates.

    python -m lab.optimizers --num_pretraining_steps=600
    python -m lab.optimizers --tasks=STS-B,SST-2 --data_dir=data

Pretraining: a small ALBERT on the documentation of the installed packages, as in the tutorial, but for more steps.
Fine-tuning: the model of `--init_checkpoint` on tasks of GLUE. A run is kept as soon as it ends; the same command
continues.
"""

import dataclasses
import datetime
import json
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

import albert_tf
from albert_tf.core import files, flags
from albert_tf.core.settings import Settings, setting
from lab import machine, tables
from lab.report import replace_parts

PAGE = "docs/results/optimizers.md"

PRETRAINING = "pretraining"
# Rates around the best of each optimizer; the first seed tries all, further seeds the best one.
PRETRAINING_RATES = {
    "lamb": (0.005, 0.01),
    "adamw": (0.001, 0.003),
    "muon": (0.003, 0.01, 0.03),
}
FINE_TUNING_RATES = {"adamw": (1e-4, 3e-4), "muon": (3e-4, 1e-3, 3e-3)}
# Steps of 32 examples, and the metric by which rates are chosen.
FINE_TUNING_TASKS = {"STS-B": "pearson", "SST-2": "accuracy"}
TASKS = (PRETRAINING, *FINE_TUNING_TASKS)

SMALL_MODEL = {
    "vocab_size": 4000,
    "embedding_size": 64,
    "hidden_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 512,
    "max_position_embeddings": 64,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerSettings(Settings):
    """The data, the steps, and where the results go."""

    tasks: str = setting(PRETRAINING, f"Of {', '.join(TASKS)}, separated by commas.")
    data_dir: str = setting("", "Folder with glue/, for fine-tuning.", input_path=True)
    init_checkpoint: str = setting(
        "models/albert-minilm-l6", "What is fine-tuned.", input_path=True
    )
    num_pretraining_steps: int = setting(600, "Steps of 64 examples.", minimum=1)
    num_fine_tuning_steps: int = setting(180, "Steps of 32 examples.", minimum=1)
    num_seeds: int = setting(3, "Seeds of the best rate of each optimizer.", minimum=1)
    work_dir: str = setting("optimizers", "Folder for text, records and runs.")
    output_file: str = setting("docs/results/data/optimizers.json", "JSON file.")

    def __post_init__(self):
        super().__post_init__()
        if unknown := set(self.tasks.split(",")) - set(TASKS):
            self.refuse("tasks", f"names {min(unknown)}; known are {', '.join(TASKS)}")
        if self.tasks != PRETRAINING and not self.data_dir:
            self.refuse("data_dir", "is required for fine-tuning")


class Cell(NamedTuple):
    """One run: what is trained, and how."""

    task: str
    optimizer: str
    learning_rate: float
    seed: int

    @property
    def name(self) -> str:
        return f"{self.task}, {self.optimizer}, {self.learning_rate:g}, seed {self.seed}"


Scores = dict[str, float]
Trainer = Callable[[Cell], Scores]


def prepare(folder: pathlib.Path) -> None:
    """Text, vocabulary and records of the tutorial; what is there stays."""
    text = folder / "text"
    if not (text / "train.txt").exists():
        albert_tf.sample_corpus(
            output_file=text / "train.txt",
            eval_output_file=text / "held_out.txt",
            eval_fraction=0.03,
            max_megabytes=5,
        )
    if not (text / "spiece.model").exists():
        albert_tf.train_sentencepiece(
            input_file=text / "train.txt",
            output_prefix=text / "spiece",
            vocab_size=SMALL_MODEL["vocab_size"],
        )
    for name, num_passes in {"train": 5, "held_out": 1}.items():
        albert_tf.create_pretraining_data(
            input_file=text / f"{name}.txt",
            output_dir=folder / "records" / name,
            spm_model_file=text / "spiece.model",
            max_seq_length=SMALL_MODEL["max_position_embeddings"],
            max_predictions_per_seq=10,
            dupe_factor=num_passes,
        )
    files.write_bytes(str(folder / "small.json"), json.dumps(SMALL_MODEL).encode())


def pretrain(cell: Cell, settings: OptimizerSettings) -> Scores:
    """Pretrains the small model; its scores on held-out text."""
    folder = pathlib.Path(settings.work_dir)
    run = albert_tf.pretrain(
        input_file=folder / "records" / "train",
        eval_file=folder / "records" / "held_out",
        albert_config_file=folder / "small.json",
        spm_model_file=folder / "text" / "spiece.model",
        output_dir=folder / "runs" / cell.name.replace(", ", "_"),
        train_batch_size=64,
        num_train_steps=settings.num_pretraining_steps,
        num_warmup_steps=settings.num_pretraining_steps // 10,
        optimizer=cell.optimizer,
        learning_rate=cell.learning_rate,
        max_eval_steps=0,
        save_checkpoints_steps=500,
        seed=cell.seed,
    )
    return dict(run.results["eval"])


def fine_tune(cell: Cell, settings: OptimizerSettings) -> Scores:
    """Fine-tunes on a task of GLUE; its scores on the development set after the last step."""
    run = albert_tf.classify(
        task_name=cell.task,
        data_dir=os.path.join(settings.data_dir, "glue"),
        init_checkpoint=settings.init_checkpoint,
        output_dir=os.path.join(settings.work_dir, "runs", cell.name.replace(", ", "_")),
        train_batch_size=32,
        num_train_steps=settings.num_fine_tuning_steps,
        max_seq_length=128,
        optimizer=cell.optimizer,
        learning_rate=cell.learning_rate,
        eval_every_steps=settings.num_fine_tuning_steps,
        seed=cell.seed,
    )
    return dict(run.results["eval"])


def metric_of(task: str) -> str:
    """The metric by which rates are compared, the higher the better."""
    return "masked_lm_accuracy" if task == PRETRAINING else FINE_TUNING_TASKS[task]


def rates_of(task: str) -> dict[str, tuple[float, ...]]:
    """Optimizer -> the learning rates to try."""
    return PRETRAINING_RATES if task == PRETRAINING else FINE_TUNING_RATES


def cells(results: dict[str, Scores], tasks: Sequence[str], num_seeds: int) -> Iterator[Cell]:
    """All runs, in order: every rate with seed 1, then further seeds of the rate that was the best there."""
    for task in tasks:
        for optimizer, rates in rates_of(task).items():
            for rate in rates:
                yield Cell(task, optimizer, rate, 1)
    for seed in range(2, num_seeds + 1):
        for task in tasks:
            for optimizer in rates_of(task):
                yield Cell(task, optimizer, best_rate(results, task, optimizer), seed)


def best_rate(results: dict[str, Scores], task: str, optimizer: str) -> float:
    """The rate with the best score of the first seed."""

    def score(rate: float) -> float:
        return results[Cell(task, optimizer, rate, 1).name][metric_of(task)]

    return max(rates_of(task)[optimizer], key=score)


def main(settings: OptimizerSettings) -> None:
    """Runs what is missing, and writes the JSON file and the table after each run."""
    results: dict[str, Scores] = {}
    if os.path.exists(settings.output_file):
        results = json.loads(pathlib.Path(settings.output_file).read_text())["scores"]
    tasks = settings.tasks.split(",")
    if PRETRAINING in tasks:
        prepare(pathlib.Path(settings.work_dir))
    content = {
        "processor": machine.processor_name(),
        "commit": machine.commit(".", short=True),
        "date": f"{datetime.date.today()}",
        "model": settings.init_checkpoint,
        "num_pretraining_steps": settings.num_pretraining_steps,
        "num_fine_tuning_steps": settings.num_fine_tuning_steps,
        "scores": results,
    }
    for cell in cells(results, tasks, settings.num_seeds):
        if cell.name in results:
            continue
        train = pretrain if cell.task == PRETRAINING else fine_tune
        results[cell.name] = {
            name: round(float(value), 5) for name, value in train(cell, settings).items()
        }
        print(f"{cell.name}: {results[cell.name]}", flush=True)
        files.write_bytes(settings.output_file, files.json_bytes(content))
        replace_parts(PAGE, {"optimizers": table_of(results)})


def table_of(results: dict[str, Scores]) -> list[str]:
    """A row for each task, optimizer and rate: the scores of all seeds, in percent."""
    rows: dict[tuple[str, str, str], list[float]] = {}
    for name, scores in results.items():
        task, optimizer, rate, _ = name.split(", ")
        rows.setdefault((task, optimizer, rate), []).append(100 * scores[metric_of(task)])
    body = []
    for (task, optimizer, rate), of_seeds in sorted(rows.items()):
        spread = f"{min(of_seeds):.1f} to {max(of_seeds):.1f}" if len(of_seeds) > 1 else ""
        median = f"{np.median(of_seeds):.1f}"
        body.append((task, metric_of(task), optimizer, rate, median, spread, len(of_seeds)))
    return tables.table("task | metric | optimizer | rate | median | from, to | seeds", body)


if __name__ == "__main__":
    flags.run(main, OptimizerSettings, description=__doc__)
