r"""Measures the sentence embeddings of a model and writes the tables of docs/results/embeddings.md.

    python -m lab.embeddings --model=models/albert-tiny-docs --data_dir=data --output_dir=embeddings
    python -m lab.embeddings --parts=report

--data_dir contains glue/STS-B/ and squad/dev-v1.1.json. Each part adds its numbers to the results of the model, and a
finished run is not repeated. `library` needs --python, an interpreter with sentence-transformers.
"""

import dataclasses
import json
import os
import pathlib
import random
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from albert_tf.core import files, flags
from albert_tf.core.machine import commit, processor_name
from albert_tf.core.settings import Settings, setting
from albert_tf.core.tables import table
from albert_tf.tasks.embedding.metrics import retrieval

_ROOT = pathlib.Path(__file__).parents[2]
_PARTS = ("untrained", "stsb", "retrieval", "library", "report")
_HELD_OUT = 12  # articles of SQuAD whose questions are not trained on
_COLUMNS = ("question", "paragraph")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabSettings(Settings):
    """The model, the data, and the parts of the measurement."""

    model: str = setting("", "The pretrained model; empty for --parts=report.", input_path=True)
    name: str = setting("", "Name of the model in the tables; by default that of its folder.")
    data_dir: str = setting("", "Folder of the data.", input_path=True)
    output_dir: str = setting("", "Folder of data and runs.")
    parts: str = setting("untrained,stsb,retrieval,report", f"Parts, of {', '.join(_PARTS)}.")
    num_runs: int = setting(3, "Number of seeds of each training.", minimum=1)
    num_train_epochs: float = setting(4.0, "Number of epochs of each training.", minimum=0.01)
    library_steps: int = setting(60, "Training steps of the comparison.", minimum=1)
    python: str = setting("", "Interpreter with sentence-transformers, for the part `library`.")
    results: str = setting("docs/results/embeddings.json", "File of all numbers.")
    page: str = setting("docs/results/embeddings.md", "Page whose tables are written.")


class Lab:
    """The parts of the measurement, each a method that returns its numbers."""

    def __init__(self, settings: LabSettings):
        self._settings = settings
        self._folder = pathlib.Path(settings.output_dir).resolve()

    # --- STS-B ---

    def _pairs(self, split: str):
        path = pathlib.Path(self._settings.data_dir) / "glue" / "STS-B" / f"{split}.tsv"
        header, *rows = (line.split("\t") for line in path.read_text("utf-8").splitlines())
        columns = [header.index(name) for name in ("sentence1", "sentence2", "score")]
        a, b, scores = zip(*([row[column] for column in columns] for row in rows), strict=True)
        return list(a), list(b), np.array(scores, float)

    def untrained(self) -> dict[str, Any]:
        """Vectors of STS-B's development texts, of the model and of random weights."""
        from albert_tf import AlbertForPreTraining, Tokenizer, load_pretrained
        from lab.embeddings import untrained

        train, pairs = self._pairs("train"), self._pairs("dev")
        texts, number = [*pairs[0], *pairs[1]], len(pairs[0])
        fitted_on = [*train[0], *train[1]]
        rows: dict[str, Any] = {
            name: {"spearman": untrained.spearman(untrained.tfidf(fitted_on, **options), pairs)}
            for name, options in untrained.TFIDF.items()
        }
        model = load_pretrained(self._settings.model)
        tokenizer = Tokenizer.from_pretrained(self._settings.model)
        for start, one in (
            ("model", model),
            ("random", AlbertForPreTraining(model.config, seed=1)),
        ):
            own = untrained.poolings(one, tokenizer, texts)
            others = untrained.poolings(one, tokenizer, fitted_on[:4000])
            for name, vectors in own.items():
                row: dict[str, Any] = untrained.described(vectors)
                for title, change in untrained.transforms(others[name]).items():
                    changed = change(vectors)
                    halves = {id(pairs[0]): changed[:number], id(pairs[1]): changed[number:]}
                    row[title] = untrained.spearman(lambda part, h=halves: h[id(part)], pairs)
                rows[f"{start}: {name}"] = row
        return rows

    def stsb(self) -> dict[str, Any]:
        """Spearman before and during the training on STS-B, for each seed."""
        folder = pathlib.Path(self._settings.data_dir) / "glue" / "STS-B"
        values = {
            "train_file": folder / "train.tsv",
            "eval_file": folder / "dev.tsv",
            "text_columns": "sentence1,sentence2",
            "loss": "cosent",
            "max_seq_length": 64,
        }
        return {f"seed {seed}": self._train("stsb", seed, values) for seed in self._seeds()}

    # --- SQuAD ---

    def _squad(self) -> dict[str, pathlib.Path]:
        """Files of questions with paragraphs, split by article, and of all paragraphs."""
        path = pathlib.Path(self._settings.data_dir) / "squad" / "dev-v1.1.json"
        articles = files.read_json(str(path))["data"]
        random.Random(1).shuffle(articles)
        lines: dict[str, list[str]] = {"train": ["\t".join(_COLUMNS)], "dev": ["\t".join(_COLUMNS)]}
        lines["corpus"] = []
        for number, article in enumerate(articles):
            for paragraph in article["paragraphs"]:
                text = " ".join(paragraph["context"].split())
                lines["corpus"].append(text)
                asked = (" ".join(one["question"].split()) for one in paragraph["qas"])
                own = lines["dev" if number < _HELD_OUT else "train"]
                own += [f"{question}\t{text}" for question in asked if question]
        paths = {name: self._folder / f"squad_{name}.tsv" for name in lines}
        for name, path in paths.items():
            files.write_bytes(str(path), ("\n".join(lines[name]) + "\n").encode())
        return paths

    def retrieval(self) -> dict[str, Any]:
        """Search of the held-out articles' questions among all paragraphs: baselines, untrained and trained."""
        from albert_tf import load_predictor
        from lab.embeddings import untrained

        paths = self._squad()
        corpus = list(dict.fromkeys(paths["corpus"].read_text("utf-8").splitlines()))
        relevant: dict[str, set[int]] = {}
        for line in paths["dev"].read_text("utf-8").splitlines()[1:]:
            question, text = line.split("\t")
            relevant.setdefault(question, set()).add(corpus.index(text))
        queries, right = [*relevant], [*relevant.values()]
        rows: dict[str, Any] = {"BM25": retrieval(untrained.bm25(corpus, queries), right)}
        for name, options in untrained.TFIDF.items():
            rows[name] = untrained.searched(
                untrained.tfidf(corpus, **options), queries, corpus, right
            )
        embed = load_predictor(self._settings.model, max_seq_length=128).embed
        vectors = embed(corpus)
        for title, change in untrained.transforms(vectors).items():
            rows[f"untrained, {title}"] = untrained.searched(
                lambda texts, c=change: c(vectors if texts is corpus else embed(texts)),
                *(queries, corpus, right),
            )
        values = self._retrieval_flags(paths)
        for seed in self._seeds():
            rows[f"trained, seed {seed}"] = self._train("squad", seed, values)["eval"]
        return rows

    def _retrieval_flags(self, paths: Mapping[str, pathlib.Path]) -> dict[str, Any]:
        return {
            "train_file": paths["train"],
            "eval_file": paths["dev"],
            "corpus_file": paths["corpus"],
            "text_columns": ",".join(_COLUMNS),
            "max_seq_length": 128,
        }

    def library(self) -> dict[str, Any]:
        """The same training here and in sentence-transformers: seconds of the steps, and recall."""
        paths, steps = self._squad(), self._settings.library_steps
        rate = 3e-4
        flags_of_ours = {
            **self._retrieval_flags(paths),
            "num_train_steps": steps,
            "learning_rate": rate,
        }
        ours = self._train("library", 1, {**flags_of_ours, "eval_every_steps": steps})
        values = {
            **{
                name: str(flags_of_ours[name])
                for name in ("train_file", "eval_file", "corpus_file")
            },
            **{"model": self._as_library(), "columns": _COLUMNS, "steps": steps, "batch": 32},
            **{"seed": 1, "learning_rate": rate, "max_seq_length": 128, "threads": os.cpu_count()},
        }
        program = str(pathlib.Path(__file__).with_name("library.py"))
        command = [self._settings.python, program, json.dumps(values)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        names = ("seconds", "recall_at_10")
        theirs = json.loads(done.stdout.splitlines()[-1])
        return {
            "albert-tf": {"seconds": ours["seconds"], "recall_at_10": ours["eval"]["recall_at_10"]},
            "sentence-transformers": {name: theirs[name] for name in names},
        }

    def _as_library(self) -> str:
        """The untrained model as a folder of sentence-transformers."""
        from albert_tf import AlbertForEmbedding, Tokenizer, load_pretrained, save_pretrained

        model, folder = load_pretrained(self._settings.model), str(self._folder / "as_library")
        embedder = AlbertForEmbedding(model.config)
        for name, variable in embedder.named_variables().items():
            variable.assign(model.named_variables()[name])
        tokenizer = Tokenizer.from_pretrained(self._settings.model)
        save_pretrained(embedder, folder, spm_model_file=tokenizer)
        return folder

    # --- Runs ---

    def _seeds(self) -> range:
        return range(1, self._settings.num_runs + 1)

    def _train(self, name: str, seed: int, values: Mapping[str, Any]) -> dict[str, Any]:
        """The scores of a run, those during its training, and the seconds of its steps."""
        folder = self._folder / "runs" / f"{name}_{seed}"
        if not (folder / "results.json").exists():
            common = {
                "init_checkpoint": self._settings.model,
                "num_train_epochs": self._settings.num_train_epochs,
                **values,
                "seed": seed,
                "log_every_steps": 10,
                "output_dir": folder,
            }
            command = [sys.executable, "run_embedder.py"]
            command += [f"--{flag}={value}" for flag, value in common.items()]
            subprocess.run(command, cwd=_ROOT, check=True)
        results = files.read_json(str(folder / "results.json"))
        logged = (folder / "metrics.jsonl").read_text().splitlines()
        evaluated = (folder / "eval" / "metrics.jsonl", folder / "eval_metrics.jsonl")
        lines = [
            line for path in evaluated if path.exists() for line in path.read_text().splitlines()
        ]
        curve = [json.loads(line) for line in lines]
        return {
            "eval": results["eval"],
            "seconds": results["seconds"],
            "curve": curve,
            "lines": len(logged),
        }


def write_tables(settings: LabSettings) -> None:
    """Writes the tables of the page between its markers, from the results of all models."""
    results, page = files.read_json(settings.results), pathlib.Path(settings.page)
    text = page.read_text("utf-8")
    for part in _PARTS[:-1]:
        start, end = f"<!-- {part} -->\n", f"<!-- end of {part} -->"
        if start in text:
            before, _, rest = text.partition(start)
            lines = "\n".join(_table(part, results))
            text = f"{before}{start}\n{lines}\n\n{end}{rest.partition(end)[2]}"
    files.write_bytes(str(page), text.encode())


def _table(part: str, results: Mapping[str, Any]) -> list[str]:
    rows = []
    for model, found in results.items():
        for name, values in found.get(part, {}).items():
            flat = {**values, **values.get("eval", {})}
            rows.append({"model": model, "": name, **flat})
    kinds = (int, float)
    columns = list(dict.fromkeys(key for row in rows for key in row if key not in ("model", "")))
    columns = [key for key in columns if any(isinstance(row.get(key), kinds) for row in rows)]
    shown = [
        [row["model"], row[""], *(f"{row[key]:.3f}" if key in row else "" for key in columns)]
        for row in rows
    ]
    return table(["model", "", *(key.replace("_", " ") for key in columns)], shown)


def main(settings: LabSettings) -> None:
    """Runs the parts, and adds their numbers to the file of results."""
    name = settings.name or os.path.basename(settings.model.rstrip("/"))
    for part in settings.parts.split(","):
        if part == "report":
            write_tables(settings)
            continue
        values = getattr(Lab(settings), part)()
        path = pathlib.Path(settings.results)
        results = files.read_json(str(path)) if path.exists() else {}
        about = {"machine": processor_name(), "commit": commit(str(_ROOT), short=True)}
        results.setdefault(name, {})[part] = values
        results[name].setdefault("about", {})[part] = about
        files.write_bytes(str(path), json.dumps(results, indent=1).encode() + b"\n")


if __name__ == "__main__":
    flags.run(main, LabSettings, description=__doc__)
