"""The whole way of the data in one command: corpus -> vocabulary -> records -> pretraining -> evaluation.

The text is the documentation inside Python's standard library and the installed packages, so that it is there on
any machine. Every step is one of the project's own programs, printed before it runs; a step whose result is there
already is left out, so that an interrupted demo goes on.
"""

import dataclasses
import json
import os
import shlex
import subprocess
import sys
import time

from albert_tf.core import flags
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
    """Where the demo works, and how long."""

    output_dir: str = setting("demo", "Folder for everything that the demo makes.")
    short: bool = setting(False, "Whether to do a minute's work only, to see that all parts run.")


def commands(settings: DemoSettings) -> list[tuple[str, list[str]]]:
    """The programs to run, each with the file whose presence says that it has been done."""
    folder = settings.output_dir
    train, held_out = f"{folder}/train.txt", f"{folder}/held_out.txt"
    vocabulary = f"{folder}/spiece"
    megabytes, dupe_factor, steps = (1, 2, 60) if settings.short else (0, 5, 2400)
    prepare = [
        *("-m", "data_prep.create_pretraining_data", f"--spm_model_file={vocabulary}.model"),
        *(f"--max_seq_length={MODEL.max_position_embeddings}", "--max_predictions_per_seq=10"),
        "--single_segment=clean",
    ]
    return [
        (
            train,
            [
                *("-m", "data_prep.sample_corpus", f"--output_file={train}"),
                *(f"--eval_output_file={held_out}", "--eval_fraction=0.03"),
                f"--max_megabytes={megabytes}",
            ],
        ),
        (
            f"{vocabulary}.model",
            [
                *("-m", "data_prep.train_sentencepiece", f"--input_file={train}"),
                *(f"--output_prefix={vocabulary}", f"--vocab_size={MODEL.vocab_size}"),
            ],
        ),
        (
            f"{folder}/records/train/metadata.json",
            [
                *prepare,
                *(f"--input_file={train}", f"--output_dir={folder}/records/train"),
                f"--dupe_factor={dupe_factor}",
            ],
        ),
        (
            f"{folder}/records/held_out/metadata.json",
            [
                *prepare,
                *(f"--input_file={held_out}", f"--output_dir={folder}/records/held_out"),
                "--dupe_factor=2",
            ],
        ),
        (
            f"{folder}/run/results.json",
            [
                *("run_pretraining.py", f"--input_file={folder}/records/train"),
                *(f"--eval_file={folder}/records/held_out", f"--output_dir={folder}/run"),
                *(f"--albert_config_file={folder}/albert_config.json",),
                *(f"--spm_model_file={vocabulary}.model", "--train_batch_size=64"),
                *(f"--num_train_steps={steps}", f"--num_warmup_steps={steps // 20}"),
                *("--learning_rate=0.01", f"--log_every_steps={steps // 24}"),
                *(f"--eval_every_steps={steps // 4}", "--max_eval_steps=0"),
                f"--save_checkpoints_steps={steps // 4}",
            ],
        ),
    ]


def main(settings: DemoSettings) -> None:
    """Runs the programs and prints what came out."""
    started = time.monotonic()
    os.makedirs(settings.output_dir, exist_ok=True)
    with open(f"{settings.output_dir}/albert_config.json", "w", encoding="utf-8") as file:
        file.write(MODEL.to_json_string())
    for result, command in commands(settings):
        if os.path.exists(result):
            print(f"\n{result} is there already", flush=True)
            continue
        print(f"\n$ python {shlex.join(command)}", flush=True)
        done = subprocess.run([sys.executable, *command])
        if done.returncode:
            raise UserError(f"{command[0:2][-1]} ended with status {done.returncode}, see above")
    print(summary(settings.output_dir, time.monotonic() - started))


def summary(folder: str, seconds: float) -> str:
    """A table of what came out, and what to type next."""
    with open(f"{folder}/run/results.json", encoding="utf-8") as file:
        results = json.load(file)
    with open(f"{folder}/records/train/metadata.json", encoding="utf-8") as file:
        counts = json.load(file)["counts"]
    files = [os.path.join(path, name) for path, _, names in os.walk(folder) for name in names]
    megabytes = sum(map(os.path.getsize, files)) / 1e6

    def accuracy(name: str) -> str:
        return f"{results['eval'][name]:.1%}  (chance {results['chance'][name]:.1%})"

    rows = {
        "documents, examples": f"{counts['documents']:,}, {counts['examples']:,}",
        "parameters": f"{results['num_parameters']:,}",
        "steps": f"{results['step']:,}",
        "masked-LM accuracy, held out": accuracy("masked_lm_accuracy"),
        "sentence-order accuracy, held out": accuracy("sentence_order_accuracy"),
        "seconds": f"{seconds:.0f}",
        "files written": f"{len(files)} in {folder}/, {megabytes:.0f} MB",
    }
    lines = [f"  {name:<35}{value}" for name, value in rows.items()]
    return "\n".join(
        [
            "",
            *lines,
            "",
            f"The model is in {folder}/run/model. What to type next:",
            f"  .venv/bin/tensorboard --logdir={folder}/run                its curves",
            "  .venv/bin/python run_pretraining.py --help              every setting",
            "  README.md, 'Pretrain on your own text'                  the same five commands on your files",
        ]
    )


if __name__ == "__main__":
    flags.run(main, DemoSettings)
