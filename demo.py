"""Runs all steps in four minutes: text -> vocabulary -> records -> pretraining -> a mask that is filled.

The text is the documentation of the installed Python packages, so every machine has some. Each step is one of the
project's programs; its command is printed before it runs. A step whose result exists is skipped.

    python demo.py
    python demo.py --minutes=10 --output_dir=longer
"""

import dataclasses
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping

from albert_tf.core import files, flags
from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings, setting
from albert_tf.model.config import AlbertConfig

MODEL = AlbertConfig(
    vocab_size=2000,
    embedding_size=64,
    hidden_size=128,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=512,
    max_position_embeddings=64,
)
OTHER_MINUTES = 0.8  # of imports, compilation and evaluations, on a fast machine
OTHER_SHARE = 1.0  # the same, as a share of the time of the preparation, on any machine
LEAST_MINUTES = 0.1  # of training, however slow the machine is


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemoSettings(Settings):
    """The folder and length of the demo."""

    output_dir: str = setting("demo", "Folder for everything that the demo makes.")
    minutes: float = setting(4.0, "Minutes until it ends, about.", minimum=0.1)


def main(settings: DemoSettings) -> None:
    """Runs the programs and prints what to try next."""
    started = time.monotonic()
    folder = settings.output_dir
    config_file = f"{folder}/albert_config.json"
    files.write_bytes(config_file, MODEL.to_json_string().encode())
    prepare(folder, settings.minutes)
    prepared = (time.monotonic() - started) / 60
    minutes = settings.minutes - prepared - max(OTHER_MINUTES, OTHER_SHARE * prepared)
    training = {
        "input_file": f"{folder}/records/train",
        "eval_file": f"{folder}/records/held_out",
        "output_dir": f"{folder}/run",
        "albert_config_file": config_file,
        "spm_model_file": f"{folder}/spiece.model",
        "train_batch_size": 32,
        "learning_rate": 0.007,
        "train_minutes": round(max(LEAST_MINUTES, minutes), 2),
        "num_train_steps": 2400,
        "num_warmup_steps": 120,
        "log_every_steps": 25,
        "eval_every_steps": 100,
        "max_eval_steps": 8,
    }
    run_program(f"{folder}/run/results.json", "pretrain", training)
    fill_mask(folder)
    print(summary(folder, time.monotonic() - started))


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


def prepare(folder: str, minutes: float) -> None:
    """Makes the text, the vocabulary and the records; a short demo reads less."""
    text = f"{folder}/train.txt"
    vocabulary = f"{folder}/spiece"
    corpus = {"output_file": text, "eval_output_file": f"{folder}/held_out.txt"}
    corpus |= {"eval_fraction": 0.03, "task_dir": f"{folder}/packages"}
    corpus |= {"max_megabytes": 1.5 if minutes < 2 else 4}
    run_program(text, "data sample_corpus", corpus)
    sentencepiece = {"input_file": text, "output_prefix": vocabulary}
    sentencepiece |= {"vocab_size": MODEL.vocab_size}
    run_program(f"{vocabulary}.model", "data train_sentencepiece", sentencepiece)
    for name, passes in (("train", 5), ("held_out", 2)):
        records = {
            "input_file": f"{folder}/{name}.txt",
            "output_dir": f"{folder}/records/{name}",
            "spm_model_file": f"{vocabulary}.model",
            "max_seq_length": MODEL.max_position_embeddings,
            "max_predictions_per_seq": 10,
            "dupe_factor": passes,
        }
        result = f"{folder}/records/{name}/metadata.json"
        run_program(result, "data create_pretraining_data", records)


def fill_mask(folder: str) -> None:
    """Prints the words that the model puts in the place of a mask."""
    texts = "Returns the [MASK] of the array.\nThe name of the [MASK] to read.\n"
    path = f"{folder}/masks.txt"
    files.write_bytes(path, texts.encode())
    print(f"\n$ albert-tf predict {folder}/run < {path}", flush=True)
    with open(path, "rb") as file:
        command = [sys.executable, "-m", "albert_tf.command", "predict", f"{folder}/run"]
        subprocess.run(command, stdin=file, check=True)


def summary(folder: str, seconds: float) -> str:
    """The results, and the next commands."""
    results = files.read_json(f"{folder}/run/results.json")
    accuracies = [
        f"  {name:<24} {results['eval'][name]:.1%}  (majority class {results['majority'][name]:.1%})"
        for name in ("masked_lm_accuracy", "sentence_order_accuracy")
    ]
    return "\n".join(
        [
            f"\nOn held-out text, after {results['step']:,} steps:",
            *accuracies,
            f"The demo took {seconds:.0f} seconds. Try next:",
            "  source .venv/bin/activate",
            f"  albert-tf classify --train_file={folder}/packages/train.tsv \\",
            f"    --eval_file={folder}/packages/dev.tsv --text_columns=text --label_column=package \\",
            f"    --init_checkpoint={folder}/run --max_seq_length=64 --output_dir={folder}/classifier",
            f"  albert-tf serve {folder}/classifier",
            "docs/guides/pretraining.md has the commands for your own text.",
        ]
    )


if __name__ == "__main__":
    flags.run(main, DemoSettings, description=__doc__)
