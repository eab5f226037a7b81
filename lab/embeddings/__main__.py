r"""Measures the sentence embeddings of a model, and writes the tables of docs/results/embeddings.md.

    python -m lab.embeddings --model=models/albert-tiny-docs --data_dir=data --output_dir=embeddings

--data_dir contains glue/STS-B/ and squad/dev-v1.1.json. Every part adds its numbers to docs/results/embeddings.json; a
finished run is not repeated. The part `library` needs --python, an interpreter with sentence-transformers.
"""

import dataclasses
import json
import os
import pathlib
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.core import files, flags
from albert_tf.core.settings import Settings, setting
from albert_tf.core.tables import table
from albert_tf.tasks.embedding.metrics import cosines, nearest, retrieval, unit_length
from albert_tf.tasks.metrics import spearman
from albert_tf.tasks.settings import as_flag
from lab.machine import commit, processor_name
from lab.pages import with_table

_ROOT = pathlib.Path(__file__).parents[2]
_RESULTS, _PAGE = (str(_ROOT / "docs/results" / f"embeddings.{end}") for end in ("json", "md"))
_HELD_OUT = 12  # articles of SQuAD whose questions are not trained on


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabSettings(Settings):
    """The model, the data, and the parts of the measurement."""

    model: str = setting("", "The pretrained model.", required=True, input_path=True)
    data_dir: str = setting("", "Folder of the data.", required=True, input_path=True)
    output_dir: str = setting("", "Folder of data and runs.", required=True)
    parts: str = setting("untrained,stsb,retrieval,library", "Parts, separated by commas.")
    num_runs: int = setting(3, "Number of seeds of each training.", minimum=1)
    num_train_epochs: float = setting(4.0, "Epochs of each training.", minimum=0.01)
    library_steps: int = setting(60, "Training steps of the part `library`.", minimum=1)
    python: str = setting("", "Interpreter with sentence-transformers, for `library`.")


def trained(
    settings: LabSettings, name: str, seed: int, evaluations: int = 1, **values: Any
) -> dict[str, Any]:
    """The results of a run of --num_train_epochs, and the metrics of its evaluations by step."""
    num_rows = len(pathlib.Path(values["train_file"]).read_bytes().splitlines()) - 1
    steps = max(evaluations, round(settings.num_train_epochs * num_rows / 32))
    values = {"num_train_steps": steps, **values}
    values["eval_every_steps"] = -(-values["num_train_steps"] // evaluations)
    folder = pathlib.Path(settings.output_dir).resolve() / "runs" / f"{name}_{seed}"
    if not (folder / "results.json").exists():
        own = {"init_checkpoint": settings.model, "seed": seed, "output_dir": folder}
        words = [as_flag(flag, value) for flag, value in {**values, **own}.items()]
        subprocess.run([sys.executable, "run_embedder.py", *words], cwd=_ROOT, check=True)
    lines = (folder / "eval_metrics.jsonl").read_text().splitlines()
    results = files.read_json(str(folder / "results.json"))
    return {**results["eval"], "seconds": results["seconds"], "curve": list(map(json.loads, lines))}


# --- Parts


def untrained(settings: LabSettings) -> dict[str, Any]:
    """Spearman's correlation on STS-B's development set, of the model and of random weights."""
    from albert_tf import AlbertForPreTraining, Tokenizer, load_pretrained
    from lab.embeddings import untrained as ways

    folder = pathlib.Path(settings.data_dir) / "glue/STS-B"
    columns = {}
    for split in ("train", "dev"):
        header, *rows = (
            line.split("\t") for line in (folder / f"{split}.tsv").read_text("utf-8").splitlines()
        )
        places = [header.index(name) for name in ("sentence1", "sentence2", "score")]
        columns[split] = [[row[place] for row in rows] for place in places]
    fitted_on = columns["train"][0] + columns["train"][1]
    first, second, scores = columns["dev"]
    truth, half = np.array(scores, float), len(first)

    def score(vectors: np.ndarray) -> float:
        return spearman(cosines(vectors[:half], vectors[half:]), truth)

    found: dict[str, Any] = {}
    for name, embed in ways.tfidf(fitted_on).items():
        products = np.asarray(embed(first).multiply(embed(second)).sum(axis=1)).ravel()
        found[name] = {"raw": spearman(products, truth)}
    model, tokenizer = load_pretrained(settings.model), Tokenizer.from_pretrained(settings.model)
    models = {"": model, ", random weights": AlbertForPreTraining(model.config, seed=1)}
    for title, one in models.items():
        own = ways.poolings(one, tokenizer, first + second)
        others = ways.poolings(one, tokenizer, fitted_on[:4000])
        for name, vectors in own.items():
            changes = ways.transforms(others[name])
            values = {change: score(function(vectors)) for change, function in changes.items()}
            found[name + title] = {**ways.described(vectors), **values}
    return found


def stsb(settings: LabSettings) -> dict[str, Any]:
    """Spearman's correlation during and after a training on STS-B, for each seed."""
    folder = pathlib.Path(settings.data_dir) / "glue/STS-B"
    values: dict[str, Any] = {name: folder / f"{name}.tsv" for name in ("train", "dev")}
    values = {"train_file": values["train"], "eval_file": values["dev"], "loss": "cosent"}
    values |= {"text_columns": "sentence1,sentence2", "max_seq_length": 64}
    found = {}
    for seed in range(1, settings.num_runs + 1):
        run = trained(settings, "stsb", seed, 6, **values)
        curve = {f"step_{line['step']}": line["spearman"] for line in run.pop("curve")}
        found[f"seed {seed}"] = {"spearman": run["spearman"], "seconds": run["seconds"], **curve}
    return found


def _squad(settings: LabSettings) -> dict[str, Any]:
    """Files of questions with paragraphs, split by article, and of all paragraphs; as flags."""
    content = files.read_json(str(pathlib.Path(settings.data_dir) / "squad/dev-v1.1.json"))
    articles = content["data"]
    random.Random(1).shuffle(articles)
    lines: dict[str, list[str]] = {
        "train": ["question\tparagraph"],
        "eval": ["question\tparagraph"],
    }
    lines["corpus"] = []
    for number, article in enumerate(articles):
        for paragraph in article["paragraphs"]:
            text = " ".join(paragraph["context"].split())
            lines["corpus"].append(text)
            questions = (" ".join(one["question"].split()) for one in paragraph["qas"])
            rows = [f"{question}\t{text}" for question in questions if question]
            lines["eval" if number < _HELD_OUT else "train"] += rows
    paths = {
        name: pathlib.Path(settings.output_dir).resolve() / f"squad_{name}.tsv" for name in lines
    }
    for name, path in paths.items():
        files.write_bytes(str(path), ("\n".join(lines[name]) + "\n").encode())
    return {**{f"{name}_file": path for name, path in paths.items()}, "max_seq_length": 128}


def retrieved(settings: LabSettings) -> dict[str, Any]:
    """Questions of the held-out articles, searched among all paragraphs."""
    from albert_tf import load_predictor
    from lab.embeddings import untrained as ways

    values = _squad(settings)
    corpus = list(dict.fromkeys(values["corpus_file"].read_text("utf-8").splitlines()))
    places = {text: place for place, text in enumerate(corpus)}
    relevant: dict[str, set[int]] = {}
    for line in values["eval_file"].read_text("utf-8").splitlines()[1:]:
        question, text = line.split("\t")
        relevant.setdefault(question, set()).add(places[text])

    def score(queries: np.ndarray, texts: np.ndarray) -> dict[str, float]:
        rows, _ = nearest(unit_length(queries), unit_length(texts), 100)
        return retrieval(rows, list(relevant.values()))

    asked = list(relevant)
    found: dict[str, Any] = {"BM25": retrieval(ways.bm25(corpus, asked), list(relevant.values()))}
    for name, embed in ways.tfidf(corpus).items():
        rows = ways.best_rows(embed(asked), embed(corpus))
        found[name] = retrieval(rows, list(relevant.values()))
    predictor = load_predictor(settings.model, max_seq_length=values["max_seq_length"])
    queries, texts = predictor.embed(asked), predictor.embed(corpus)
    for name, change in ways.transforms(texts).items():
        found[f"untrained, {name.replace('_', ' ')}"] = score(change(queries), change(texts))
    for seed in range(1, settings.num_runs + 1):
        run = trained(settings, "squad", seed, **values, text_columns="question,paragraph")
        run.pop("curve")
        found[f"trained, seed {seed}"] = run
    return found


def library(settings: LabSettings) -> dict[str, Any]:
    """The same training here and in sentence-transformers."""
    from albert_tf import AlbertForEmbedding, Tokenizer, load_pretrained, save_pretrained

    values, steps = _squad(settings), settings.library_steps
    common = {"learning_rate": 3e-4, "max_seq_length": values.pop("max_seq_length")}
    columns = {"text_columns": "question,paragraph", "num_train_steps": steps}
    ours = trained(settings, "library", 1, **values, **common, **columns)
    model, start = load_pretrained(settings.model), str(pathlib.Path(settings.output_dir) / "start")
    embedder = AlbertForEmbedding(model.config)
    for name, variable in embedder.named_variables().items():
        variable.assign(model.named_variables()[name])
    tokenizer = Tokenizer.from_pretrained(settings.model)
    task = {"max_seq_length": common["max_seq_length"]}
    save_pretrained(embedder, start, spm_model_file=tokenizer, task=task)
    theirs = {**common, "model": start, "steps": steps, "batch": 32, "seed": 1}
    theirs |= {"threads": os.cpu_count(), **{name: str(path) for name, path in values.items()}}
    program = str(pathlib.Path(__file__).with_name("library.py"))
    command = [settings.python, program, json.dumps(theirs)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    names = ("seconds", "recall_at_10")
    return {
        "albert-tf": {name: ours[name] for name in names},
        "sentence-transformers": json.loads(done.stdout.splitlines()[-1]),
    }


PARTS = {"untrained": untrained, "stsb": stsb, "retrieval": retrieved, "library": library}


# --- Tables


def tables(part: str, results: Mapping[str, Any]) -> list[str]:
    """The table of a part, with the rows of all models."""
    rows = [
        (f"`{model}`: {name}" if len(results) > 1 else name, values)
        for model, found in results.items()
        for name, values in found.get(part, {}).items()
    ]
    columns = list(dict.fromkeys(column for _, values in rows for column in values))
    header = " | ".join([part, *(column.replace("_", " ") for column in columns)])
    return table(header, [[name, *_cells(values, columns)] for name, values in rows])


def _cells(values: Mapping[str, float], columns: Sequence[str]) -> list[str]:
    digits = {"seconds": 0}
    return [f"{values[name]:.{digits.get(name, 3)}f}" if name in values else "" for name in columns]


def main(settings: LabSettings) -> None:
    """Runs the parts, adds their numbers to the file of results, and writes the tables of the page."""
    name = os.path.basename(settings.model.rstrip("/"))
    for part in filter(None, settings.parts.split(",")):
        values = PARTS[part](settings)
        results = files.read_json(_RESULTS) if files.exists(_RESULTS) else {}
        own = results.setdefault(name, {})
        own[part] = values
        own["made_by"] = {"machine": processor_name(), "commit": commit(str(_ROOT), short=True)}
        files.write_bytes(_RESULTS, (json.dumps(results, indent=1) + "\n").encode())
    results, text = files.read_json(_RESULTS), files.read_bytes(_PAGE).decode()
    for part in PARTS:
        text = with_table(text, part, tables(part, results))
    files.write_bytes(_PAGE, text.encode())


if __name__ == "__main__":
    flags.run(main, LabSettings, description=__doc__)
