"""All steps in one command: corpus -> vocabulary -> records -> pretraining -> evaluation.

The text is the documentation in Python's standard library and the installed packages, which every machine has. Each
step is one of the project's programs; its command is printed before it runs. A step whose result exists is skipped, so
that an interrupted demo continues.
"""

import dataclasses
import os
import pathlib
import shlex
import subprocess
import sys
import time

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
        """The folder for everything; the short demo must not take the results of the full one for its own."""
        return self.output_dir or ("demo/short" if self.short else "demo")


def commands(settings: DemoSettings) -> list[tuple[str, list[str]]]:
    """The programs to run, each with a file that exists when it has finished."""
    folder = settings.folder
    train, held_out = f"{folder}/train.txt", f"{folder}/held_out.txt"
    vocabulary = f"{folder}/spiece"
    megabytes, dupe_factor, steps = (1, 2, 60) if settings.short else (0, 5, 2400)
    corpus = {"output_file": train, "eval_output_file": held_out, "eval_fraction": 0.03}
    corpus["max_megabytes"] = megabytes
    sentencepiece = {"input_file": train, "output_prefix": vocabulary}
    sentencepiece["vocab_size"] = MODEL.vocab_size
    prepare = {
        "spm_model_file": f"{vocabulary}.model",
        "max_seq_length": MODEL.max_position_embeddings,
        "max_predictions_per_seq": 10,
        "single_segment": "clean",
    }
    pretraining = {
        "input_file": f"{folder}/records/train",
        "eval_file": f"{folder}/records/held_out",
        "output_dir": f"{folder}/run",
        "albert_config_file": f"{folder}/albert_config.json",
        "spm_model_file": f"{vocabulary}.model",
        "train_batch_size": 64,
        "num_train_steps": steps,
        "num_warmup_steps": steps // 20,
        "learning_rate": 0.01,
        "log_every_steps": steps // 24,
        "eval_every_steps": steps // 4,
        "max_eval_steps": 0,
        "save_checkpoints_steps": steps // 4,
    }
    programs: list[tuple[str, str, dict]] = [
        (train, "-m data_prep.sample_corpus", corpus),
        (f"{vocabulary}.model", "-m data_prep.train_sentencepiece", sentencepiece),
    ]
    for name, text, passes in (("train", train, dupe_factor), ("held_out", held_out, 2)):
        records = f"{folder}/records/{name}"
        own = {**prepare, "input_file": text, "output_dir": records, "dupe_factor": passes}
        programs.append((f"{records}/metadata.json", "-m data_prep.create_pretraining_data", own))
    programs.append((f"{folder}/run/results.json", "run_pretraining.py", pretraining))
    return [
        (result, [*program.split(), *(f"--{name}={value}" for name, value in own.items())])
        for result, program, own in programs
    ]


def main(settings: DemoSettings) -> None:
    """Runs the programs and prints the results."""
    started = time.monotonic()
    config_file = f"{settings.folder}/albert_config.json"
    files.write_bytes(config_file, MODEL.to_json_string().encode())
    for result, command in commands(settings):
        if os.path.exists(result):
            print(f"\n{result} exists already", flush=True)
            continue
        print(f"\n$ python {shlex.join(command)}", flush=True)
        done = subprocess.run([sys.executable, *command])
        if done.returncode:
            raise UserError(f"{command[0:2][-1]} ended with status {done.returncode}, see above")
    print(summary(settings.folder, time.monotonic() - started))


def summary(folder: str, seconds: float) -> str:
    """A table of the results, and the next commands."""
    results = files.read_json(f"{folder}/run/results.json")
    counts = files.read_json(f"{folder}/records/train/metadata.json")["counts"]
    sizes = [path.stat().st_size for path in pathlib.Path(folder).rglob("*") if path.is_file()]

    def accuracy(name: str) -> str:
        return f"{results['eval'][name]:.1%}  (chance {results['chance'][name]:.1%})"

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
    return f"""
{lines}

The model is in {folder}/run/model. Next commands:
  .venv/bin/tensorboard --logdir={folder}/run                its curves
  .venv/bin/python run_pretraining.py --help              every setting
  README.md, 'Pretrain on your own text'                  the same five commands on your files"""


if __name__ == "__main__":
    flags.run(main, DemoSettings)
