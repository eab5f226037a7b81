"""Makes the runs of docs/results/small_models.md: learning rates, healthy and stuck runs, a second domain.

    python lab/tools/small_runs.py WORK --text_dir=DATA/text/gutenberg --glue_dir=DATA/glue

All files are written to WORK, which must already contain the demo (`python demo.py
--output_dir=WORK/demo`), whose text, vocabulary and model are used. Finished runs are not run
again, so a second call continues. Afterwards, `lab/tools/small_runs_report.py` writes tables and
pictures.
"""

import argparse
import json
import pathlib
import shlex
import subprocess
import sys
from collections.abc import Mapping

from albert_tf.core import files
from albert_tf.tasks import registry
from albert_tf.tasks.settings import FineTuningOptimizerConfig, FineTuningRunConfig

GROUPS = ("rates", "baseline", "domain", "stuck")
RATES = (3e-5, 1e-4, 3e-4, 1e-3)
# Width -> number of steps and learning rate of pretraining before fine-tuning; the demo has pretrained D = 128.
PRETRAINED = {64: (1500, 0.01), 256: (600, 0.005)}
# Width -> (start, task, seed) -> learning rates of fine-tuning.
SWEEPS = {
    64: {
        (kind, task, seed): RATES
        for seed in (1, 2)
        for kind in ("pretrained", "random")
        for task in ("packages", "sst2")
    },
    128: {
        ("pretrained", "packages", 1): RATES,
        ("pretrained", "packages", 2): (1e-4, 3e-4),
        ("pretrained", "sst2", 1): RATES,
        ("random", "packages", 1): RATES,
        ("random", "sst2", 1): RATES[1:],
    },
    256: {
        ("pretrained", "packages", 1): RATES[:3],
        ("pretrained", "sst2", 1): (1e-4, 3e-4),
        ("random", "packages", 1): (1e-4, 3e-4),
    },
    384: {("random", "packages", 1): (1e-4, 3e-4)},
}
# Columns of text and label of each task, whose files are WORK/tasks/NAME/{train,dev}.tsv.
COLUMNS = {
    "packages": ("text", "package"),
    "sst2": ("sentence", "label"),
    "authors": ("text", "author"),
}
TRAIN_BOOKS = (
    "austen-emma",
    "austen-sense",
    "chesterton-ball",
    "chesterton-brown",
    "melville-moby_dick",
)
HELD_OUT_BOOKS = ("austen-persuasion", "chesterton-thursday")
PASSAGE_WORDS, PASSAGES = 45, 500
SST2_ROWS = 4000


class Work:
    """The folder of all runs.

    Args:
      folder: WORK.
      text_dir: folder of books, one file each, named AUTHOR-TITLE.txt.
      glue_dir: folder with SST-2.
    """

    def __init__(self, folder: str, text_dir: str, glue_dir: str):
        self.folder = pathlib.Path(folder).resolve()
        self.books, self.glue = pathlib.Path(text_dir), pathlib.Path(glue_dir)
        self.demo = self.folder / "demo"
        self.vocabulary = self.demo / "spiece.model"

    def run(self, result: str | pathlib.Path, program: str, **values: object) -> None:
        """Runs a program, unless the file that it makes in WORK exists."""
        if not (self.folder / result).exists():
            command = [*program.split(), *(f"--{name}={value}" for name, value in values.items())]
            print(f"$ python {shlex.join(command)}", flush=True)
            subprocess.run([sys.executable, *command], check=True)

    def config_file(self, width: int) -> pathlib.Path:
        """A file with the sizes of a model like the demo's, with another width."""
        path = self.folder / "sizes" / f"{width}.json"
        sizes = json.loads((self.demo / "albert_config.json").read_text())
        sizes |= {"hidden_size": width, "intermediate_size": 4 * width}
        sizes["num_attention_heads"] = width // 32
        files.write_bytes(str(path), json.dumps(sizes).encode())
        return path

    # --- Data ---

    def make_tasks(self) -> None:
        """Writes the files of all tasks."""
        tables = {
            "packages": [
                (self.demo / "packages" / name).read_text() for name in ("train.tsv", "dev.tsv")
            ],
            "sst2": [(self.glue / "SST-2" / name).read_text() for name in ("train.tsv", "dev.tsv")],
            "authors": self._authors(),
        }
        train, dev = tables["sst2"]
        tables["sst2"] = ["\n".join(train.splitlines()[: SST2_ROWS + 1]) + "\n", dev]
        for task, contents in tables.items():
            for name, content in zip(("train.tsv", "dev.tsv"), contents, strict=True):
                files.write_bytes(str(self.folder / "tasks" / task / name), content.encode())

    def _authors(self) -> list[str]:
        """Passages of six authors; the passages of the last sixth of each book are for development."""
        parts = {"train": {}, "dev": {}}
        for path in sorted(self.books.glob("*.txt")):
            author = path.stem.partition("-")[0]
            words = path.read_text(errors="replace").split()
            starts = range(PASSAGE_WORDS, len(words) - PASSAGE_WORDS, PASSAGE_WORDS)
            for start in starts:  # the first passage names the author
                part = "train" if start < 5 / 6 * len(words) else "dev"
                text = " ".join(words[start : start + PASSAGE_WORDS])
                parts[part].setdefault(author, []).append(text)
        sizes = {author: len(passages) for author, passages in parts["train"].items()}
        largest = sorted(sorted(sizes, key=sizes.get)[-6:])
        contents = []
        for part, most in (("train", PASSAGES * 4 // 5), ("dev", PASSAGES // 5)):
            rows = []
            for author in largest:
                passages = parts[part][author]
                step = max(1, len(passages) // most)
                rows += [f"{text}\t{author}" for text in passages[::step][:most]]
            contents.append("\n".join(["text\tauthor", *rows, ""]))
        return contents

    def make_second_domain(self) -> None:
        """Makes records of novels, for training and held out, and of novels together with a part of the demo's text."""
        for name, books in (("train", TRAIN_BOOKS), ("held_out", HELD_OUT_BOOKS)):
            self.run(
                f"novels/{name}.txt",
                "-m data_prep.split_sentences",
                input_file=",".join(str(self.books / f"{book}.txt") for book in books),
                output_file=self.folder / f"novels/{name}.txt",
                document_separator="blank_line",
                invalid_utf8="replace",
            )
        novels = (self.folder / "novels/train.txt").read_bytes()
        old = (self.demo / "train.txt").read_bytes()
        old = old[: old.index(b"\n\n", len(novels) // 4) + 2]  # a fifth of both together
        files.write_bytes(str(self.folder / "novels/old.txt"), old)
        texts = {"train": ("train",), "held_out": ("held_out",), "mixed": ("train", "old")}
        for name, parts in texts.items():
            self.run(
                f"novels/records/{name}/metadata.json",
                "-m data_prep.create_pretraining_data",
                input_file=",".join(str(self.folder / f"novels/{part}.txt") for part in parts),
                output_dir=self.folder / f"novels/records/{name}",
                spm_model_file=self.vocabulary,
                max_seq_length=64,
                max_predictions_per_seq=10,
                single_segment="clean",
                record_format="full",
                dupe_factor=2 if name == "held_out" else 5,
            )

    # --- Runs ---

    def pretrain(self, name: str, steps: int, rate: float, **values: object) -> None:
        """Pretrains into WORK/NAME, by default on the demo's records and with 5 % of warm-up."""
        values = {
            "input_file": self.demo / "records/train",
            "eval_file": self.demo / "records/held_out",
            "output_dir": self.folder / name,
            "spm_model_file": self.vocabulary,
            "train_batch_size": 64,
            "num_train_steps": steps,
            "num_warmup_steps": steps // 20,
            "learning_rate": rate,
            "log_every_steps": max(1, steps // 40),
            "eval_every_steps": steps // 4,
            "max_eval_steps": 0,
            "save_checkpoints_steps": steps,
            **values,
        }
        self.run(f"{name}/results.json", "run_pretraining.py", **values)

    def evaluate(self, name: str, model: str, records: pathlib.Path) -> None:
        """Evaluates a pretrained model on held-out records."""
        self.run(
            f"{name}/results.json",
            "run_pretraining.py",
            do_train="false",
            init_checkpoint=self.folder / model,
            eval_file=records,
            max_eval_steps=0,
            output_dir=self.folder / name,
        )

    def fine_tune(self, name: str, task: str, **values: object) -> None:
        """Fine-tunes into WORK/NAME in this process, so that starting and compiling happens once for all runs."""
        if (self.folder / name / "results.json").exists():
            return
        from albert_tf.tasks import repeated_runs

        definition = registry.find("tsv")
        text, label = COLUMNS[task]
        examples = (self.folder / "tasks" / task / "train.tsv").read_bytes().count(b"\n") - 1
        values = {
            "task_name": "tsv",
            "train_file": str(self.folder / "tasks" / task / "train.tsv"),
            "eval_file": str(self.folder / "tasks" / task / "dev.tsv"),
            "text_columns": text,
            "label_column": label,
            "spm_model_file": str(self.vocabulary),
            "output_dir": str(self.folder / name),
            "feature_cache_dir": str(self.folder / "features"),
            "eval_batch_size": 128,
            "log_every_steps": 10,
            "eval_every_steps": max(1, examples // 32),  # once in an epoch
            **values,
        }
        print(f"--- {name}", flush=True)
        classes = (FineTuningRunConfig, FineTuningOptimizerConfig, definition.settings)
        run, optimizer, config = (
            cls(**{key: value for key, value in values.items() if key in cls.names()})
            for cls in classes
        )
        repeated_runs.fine_tune(registry.resolve(definition.task), config, run, optimizer)

    def logistic_regression(self, name: str, task: str) -> None:
        """Trains a logistic regression on TF-IDF of words and pairs of words; writes a run's results to WORK/NAME."""
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        parts = []
        for part in ("train", "dev"):
            lines = (self.folder / "tasks" / task / f"{part}.tsv").read_text().splitlines()
            rows = [line.split("\t") for line in lines]
            parts.append(
                [[row[rows[0].index(column)] for row in rows[1:]] for column in COLUMNS[task]]
            )
        (texts, labels), (dev_texts, dev_labels) = parts
        vectors = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
        model = make_pipeline(vectors, LogisticRegression(C=10, max_iter=1000)).fit(texts, labels)
        results = {"eval": {"accuracy": model.score(dev_texts, dev_labels)}}
        files.write_bytes(str(self.folder / name / "results.json"), json.dumps(results).encode())

    def start(self, width: int, kind: str) -> Mapping[str, str]:
        """The settings for starting from a pretrained model of a width, or from random weights."""
        if kind == "random":
            return {"albert_config_file": str(self.config_file(width))}
        folder = self.demo / "run" if width == 128 else self.folder / f"pretrained/{width}"
        return {"init_checkpoint": str(folder)}


def rates(work: Work) -> None:
    """Learning rates of fine-tuning by width, task and start, with 32 tokens."""
    for width, (steps, rate) in PRETRAINED.items():
        config = work.config_file(width)
        work.pretrain(f"pretrained/{width}", steps, rate, albert_config_file=config)
    for width, sweeps in SWEEPS.items():
        for (kind, task, seed), sweep in sweeps.items():
            for rate in sweep:
                values = {"learning_rate": rate, "seed": seed, "max_seq_length": 32}
                name = f"rates/{width}/{task}/{kind}/{rate:g}/{seed}"
                work.fine_tune(name, task, **values, **work.start(width, kind))


def baseline(work: Work) -> None:
    """The demo's model with the default rate and its full length, for comparison with a logistic regression."""
    for task in COLUMNS:
        work.logistic_regression(f"baseline/{task}/logistic regression", task)
    for epochs, task in ((3, "authors"), (3, "packages"), (10, "packages"), (10, "authors")):
        values = {"learning_rate": 3e-4, "seed": 1, "num_train_epochs": float(epochs)}
        values |= {"max_seq_length": 64, **work.start(128, "pretrained")}
        work.fine_tune(f"baseline/{task}/{epochs}/1", task, **values)


def stuck(work: Work) -> None:
    """Runs that learn nothing, each because of one wrong setting; the healthy runs are in the other groups."""
    for rate in (0.1, 0.0001):
        config = work.config_file(128)
        work.pretrain(f"stuck/rate {rate:g}", 400, rate, albert_config_file=config)
    values = {"learning_rate": 3e-4, "seed": 1, **work.start(128, "pretrained")}
    work.fine_tune("stuck/8 tokens", "authors", max_seq_length=8, **values)
    work.fine_tune("stuck/10 steps", "authors", max_seq_length=64, num_train_steps=10, **values)


def domain(work: Work) -> None:
    """Pretrains the demo's model further on novels, and evaluates it on both texts."""
    work.make_second_domain()
    steps, start = 600, {"init_checkpoint": work.demo / "run"}
    runs = {f"rate {rate:g}": (rate, start) for rate in (0.001, 0.003, 0.01)}
    runs["rate 0.01, no warm-up"] = (0.01, {**start, "num_warmup_steps": 0})
    mixed = {"input_file": work.folder / "novels/records/mixed"}
    for rate in (0.003, 0.01):
        runs[f"rate {rate:g}, a fifth old text"] = (rate, {**start, **mixed})
    runs["random weights"] = (0.01, {"albert_config_file": work.config_file(128)})
    novels = {
        "input_file": work.folder / "novels/records/train",
        "eval_file": work.folder / "novels/records/held_out",
    }
    for name, (rate, values) in runs.items():
        work.pretrain(f"domain/{name}", steps, rate, **{**novels, **values})
        work.evaluate(f"domain/old/{name}", f"domain/{name}", work.demo / "records/held_out")
    work.evaluate("domain/old/before", "demo/run", work.demo / "records/held_out")
    work.evaluate("domain/before", "demo/run", work.folder / "novels/records/held_out")


def main(folder: str, text_dir: str, glue_dir: str, only: str) -> None:
    """Makes the data and all runs of the groups."""
    work = Work(folder, text_dir, glue_dir)
    work.make_tasks()
    for group in only.split(","):
        {"rates": rates, "baseline": baseline, "stuck": stuck, "domain": domain}[group](work)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", help="folder of all runs, which holds the demo")
    parser.add_argument("--text_dir", required=True, help="folder of books, AUTHOR-TITLE.txt")
    parser.add_argument("--glue_dir", required=True, help="folder with SST-2")
    parser.add_argument("--only", default=",".join(GROUPS), help="groups, separated by commas")
    main(**vars(parser.parse_args()))
