"""Runs all steps with one command: corpus -> vocabulary -> records -> pretraining -> evaluation.

The text is the documentation in Python's standard library and in the installed packages, so every machine has some.
Each step is one of the project's programs; its command is printed before it runs. A step whose result exists is
skipped, so an interrupted demo can be continued by the same command.

    python demo.py
    python demo.py --short
"""

import dataclasses
import os
import pathlib
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping

from albert_tf.core import files, flags
from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings, setting
from albert_tf.model.config import AlbertConfig

MODEL = AlbertConfig(
    vocab_size=4000,
    embedding_size=64,
    hidden_size=128,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=512,
    max_position_embeddings=64,
)
BATCH = 64
MAX_STEPS, SHORT_STEPS = 2400, 60
MAX_SECONDS = 500  # until pretraining ends, without its start and evaluations


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemoSettings(Settings):
    """The folder and length of the demo."""

    output_dir: str = setting(
        "",
        "Folder for everything that the demo makes; by default demo, or demo/short with --short.",
    )
    short: bool = setting(False, "Whether to run all steps in a minute or two, as a check.")

    @property
    def folder(self) -> str:
        """The folder for all files; the short demo has its own, so that it does not use results of the full demo."""
        return self.output_dir or ("demo/short" if self.short else "demo")


def main(settings: DemoSettings) -> None:
    """Runs the programs and prints the results."""
    started = time.monotonic()
    folder = settings.folder
    files.write_bytes(f"{folder}/albert_config.json", MODEL.to_json_string().encode())
    for result, program, values in preparation(settings):
        run_program(result, program, values)
    steps = number_of_steps(settings, time.monotonic() - started)
    values = pretraining(folder, steps) | {
        "eval_file": f"{folder}/records/held_out",
        "max_eval_steps": 0,
        "log_every_steps": max(1, steps // 24),
        "eval_every_steps": steps // 4,
        "save_checkpoints_steps": steps // 4,
    }
    run_program(f"{folder}/run/results.json", "pretrain", values)
    print(summary(settings, time.monotonic() - started))


def run_program(result: str, program: str, values: Mapping[str, object]) -> None:
    """Prints a command and runs it, unless the file that it makes exists.

    Raises:
      UserError: the program fails.
    """
    if os.path.exists(result):
        print(f"\n{result} exists already", flush=True)
        return
    command = [*program.split(), *(f"--{name}={value}" for name, value in values.items())]
    print(f"\n$ albert-tf {shlex.join(command)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "albert_tf.command", *command])
    if done.returncode:
        raise UserError(f"{program} ended with status {done.returncode}, see above")


def preparation(settings: DemoSettings) -> Iterator[tuple[str, str, dict[str, object]]]:
    """The programs before pretraining: for each a file that exists when it has finished, its name, and its flags."""
    folder = settings.folder
    train, held_out = f"{folder}/train.txt", f"{folder}/held_out.txt"
    vocabulary = f"{folder}/spiece"
    megabytes, dupe_factor = (1, 2) if settings.short else (0, 5)
    corpus = {"output_file": train, "eval_output_file": held_out, "eval_fraction": 0.03}
    yield train, "data sample_corpus", {**corpus, "max_megabytes": megabytes}
    sentencepiece = {"input_file": train, "output_prefix": vocabulary}
    sentencepiece["vocab_size"] = MODEL.vocab_size
    yield f"{vocabulary}.model", "data train_sentencepiece", sentencepiece
    prepare = {
        "spm_model_file": f"{vocabulary}.model",
        "max_seq_length": MODEL.max_position_embeddings,
        "max_predictions_per_seq": 10,
        "single_segment": "clean",
        "record_format": "full",  # the results in docs/results were measured with it
    }
    for name, text, passes in (("train", train, dupe_factor), ("held_out", held_out, 2)):
        records = f"{folder}/records/{name}"
        own = {**prepare, "input_file": text, "output_dir": records, "dupe_factor": passes}
        yield f"{records}/metadata.json", "data create_pretraining_data", own
    task = {"output_dir": f"{folder}/packages"}
    yield f"{folder}/packages/dev.tsv", "data sample_task", task


def pretraining(folder: str, steps: int) -> dict[str, object]:
    """The flags of pretraining for a number of steps."""
    return {
        "input_file": f"{folder}/records/train",
        "output_dir": f"{folder}/run",
        "albert_config_file": f"{folder}/albert_config.json",
        "spm_model_file": f"{folder}/spiece.model",
        "train_batch_size": BATCH,
        "num_train_steps": steps,
        "num_warmup_steps": steps // 20,
        "learning_rate": 0.01,
    }


def number_of_steps(settings: DemoSettings, seconds: float) -> int:
    """The number of pretraining steps with which the demo takes less than ten minutes.

    Args:
      settings: the folder and length of the demo.
      seconds: how long the demo has run.
    """
    folder = settings.folder
    config = f"{folder}/run/config.json"
    if os.path.exists(config):  # the demo was interrupted
        return files.read_json(config)["optimizer"]["num_train_steps"]
    if settings.short:
        return SHORT_STEPS
    print("\nHow fast is this machine?", flush=True)
    values = {**pretraining(folder, 60), "output_dir": f"{folder}/speed", "log_every_steps": 20}
    run_program(f"{folder}/speed/results.json", "pretrain", values)
    lines = files.read_bytes(f"{folder}/speed/metrics.jsonl").splitlines()
    speed = files.parse_json(lines[-1], f"{folder}/speed/metrics.jsonl")["examples_per_second"]
    steps = int(speed / BATCH * (MAX_SECONDS - seconds)) // 24 * 24
    return min(max(steps, 240), MAX_STEPS)


def summary(settings: DemoSettings, seconds: float) -> str:
    """A table of the results, and the next commands."""
    folder = settings.folder
    results = files.read_json(f"{folder}/run/results.json")
    counts = files.read_json(f"{folder}/records/train/metadata.json")["counts"]
    sizes = [path.stat().st_size for path in pathlib.Path(folder).rglob("*") if path.is_file()]

    def accuracy(name: str) -> str:
        return f"{results['eval'][name]:.1%}  (majority class {results['majority'][name]:.1%})"

    rows = {
        "documents, examples": f"{counts['documents']:,}, {counts['examples']:,}",
        "parameters": f"{results['num_parameters']:,}",
        "steps": f"{results['step']:,}",
        "masked-LM accuracy, held out": accuracy("masked_lm_accuracy"),
        "sentence-order accuracy, held out": accuracy("sentence_order_accuracy"),
        "seconds": f"{seconds:.0f}",
        "files written": f"{len(sizes)} in {folder}/, {sum(sizes) / 1e6:.0f} MB",
    }
    lines = "\n".join(f"  {name:<35}{value}" for name, value in rows.items())
    note = (
        "\nThese few steps only check the programs: the accuracy means nothing."
        if settings.short
        else ""
    )
    return f"""
{lines}
{note}
The model is in {folder}/run/model. Fine-tune it to predict which package a text documents (a minute), then use it:
  source .venv/bin/activate
  albert-tf classify --task_name=tsv --train_file={folder}/packages/train.tsv \\
    --eval_file={folder}/packages/dev.tsv --text_columns=text --label_column=package \\
    --init_checkpoint={folder}/run --max_seq_length=64 --output_dir={folder}/classifier
  albert-tf predict {folder}/classifier --interactive

docs/pretraining.md has these commands for your own files."""


if __name__ == "__main__":
    flags.run(main, DemoSettings, description=__doc__)
