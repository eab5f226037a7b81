"""Files of ours that are damaged at random are read, or rejected in one line that names a file: never a traceback.

Bytes are changed, zeroed, inserted or cut off, and values of JSON files replaced by those of other types. With
ALBERT_TEST_DAMAGES=300, each kind of file is damaged that many times.
"""

import gzip
import json
import os
import pathlib
import random
import shutil
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import pandas
import pytest

from albert_tf import UserError, load_predictor, save_pretrained
from albert_tf.data import reading
from albert_tf.data.record_formats.metadata import read_metadata
from albert_tf.data.record_set import find_pretraining_records
from albert_tf.export import export_model
from albert_tf.model import heads
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.user_files import table_files
from tests import helpers
from tests.helpers import TINY

pytestmark = [
    pytest.mark.usefixtures("eagerly"),
    pytest.mark.filterwarnings("ignore:.*run_functions_eagerly.*:UserWarning"),
]

FEW = 6
MANY = int(os.environ.get("ALBERT_TEST_DAMAGES", "60"))
OTHER_VALUES = [
    *(None, True, -1, 0, 1, 2.5, 10**12, 10**400, float("inf"), float("nan")),
    *("", "x", "a\nb", "../x", [], [1], ["x"], [[]], {}, {"x": 1}, {"0": None}, [{}] * 3),
]


class Kind(NamedTuple):
    """Files that belong together."""

    write: Callable[[pathlib.Path], object]  # into a folder that exists
    read: Callable[[str], object]
    may_be_damaged: str = "*"


def vocabulary(folder: pathlib.Path, **options: Any) -> str:
    """A model of characters, with the comma, without which no graph can tokenize."""
    return helpers.train_spm(
        folder / "spiece.model",
        [f"{helpers.WORDS} ,".lower()] * 3,
        model_type="char",
        vocab_size=99,
        hard_vocab_limit=False,
        **options,
    )


def write_model(folder: pathlib.Path, format: str = "hf") -> None:
    """A classifier with the settings of its task, and a SentencePiece vocabulary."""
    vocabulary_file = vocabulary(folder)
    size = Tokenizer.from_file(vocabulary_file).vocab_size
    config = TINY.replace(vocab_size=size, num_hidden_layers=1).with_labels(["no", "yes"], "table")
    model = heads.AlbertForSequenceClassification(config)
    task = {"max_seq_length": 13, "text_columns": "text", "windows": False}
    save_pretrained(model, folder, format, vocabulary_file, task=task)
    (folder / "README.md").unlink(missing_ok=True)
    if format == "tf1":  # which has a copy under the original's name
        (folder / "spiece.model").unlink()


def write_embedder(folder: pathlib.Path) -> None:
    """An embedder with a projection, whose WordPiece vocabulary is in its tokenizer.json alone."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *helpers.WORDS.split()]
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    how = {"pooling": "mean", "projection_size": 3, "normalize": True}
    config = TINY.replace(
        vocab_size=len(tokens), num_hidden_layers=1, foreign={"sentence_embedding": how}
    )
    model = heads.AlbertForEmbedding(config)
    save_pretrained(model, folder, spm_model_file=folder / "vocab.txt", task=how)
    for name in ("vocab.txt", "README.md"):
        (folder / name).unlink()


def write_export(folder: pathlib.Path, **options: Any) -> None:
    (folder / "model").mkdir()
    write_model(folder / "model")
    export_model(str(folder / "model"), str(folder), **options)
    shutil.rmtree(folder / "model")


def predict(path: str) -> object:
    return load_predictor(path).predict(["a cat saw the tree . ?", ""])


def write_records(folder: pathlib.Path) -> None:
    path = helpers.write_records(folder / "a.tfrecord", helpers.random_features(9))
    shard = {"file": path.name, "bytes": path.stat().st_size, "examples": 9, "records": 9}
    write_json(
        folder / "metadata.json",
        {
            "record_format": "full",
            "max_seq_length": helpers.LENGTH,
            "max_predictions_per_seq": helpers.PREDICTIONS,
            "do_lower_case": True,
            "counts": {"examples": 9, "records": 9},
            "shards": [shard],
        },
    )


def write_packed_metadata(folder: pathlib.Path) -> None:
    shard = {"file": "a.tfrecord", "bytes": 900, "examples": 9, "records": 5}
    write_json(
        folder / "metadata.json",
        {
            "record_format": "packed",
            "max_seq_length": helpers.LENGTH,
            "max_predictions_per_seq": helpers.PREDICTIONS,
            "masking": "dynamic",
            "masked_lm_prob": 0.15,
            "ngram": 3,
            "favor_shorter_ngram": True,
            "do_whole_word_mask": True,
            "word_start_rule": "original",
            "vocabulary": {"cls_id": 2, "sep_id": 3, "mask_id": 4, "word_starts": "110001"},
            "counts": {"examples": 9, "max_examples_per_row": 2, "max_predictions_per_row": 3},
            "shards": [shard],
        },
    )


def write_json(path: pathlib.Path, value: Any) -> None:
    path.write_text(json.dumps(value))


def read_records(folder: str) -> object:
    record_set = find_pretraining_records(folder, "input_file")
    return list(reading.first_batches(record_set, record_set.schema, 4))


FRAME = pandas.DataFrame({"id": [*range(30)], "text": ["a cat", "b, c", "d e f"] * 10})


def table(name: str) -> Kind:
    """A table whose format the ending of its name selects."""

    def write(folder: pathlib.Path) -> None:
        path = folder / name
        if name.endswith(".parquet"):
            FRAME.to_parquet(path, index=False)
        elif name.endswith(".arrow"):
            FRAME.to_feather(path)
        elif name.endswith(".jsonl"):
            FRAME.to_json(path, orient="records", lines=True)
        else:
            content = FRAME.to_csv(sep="\t", index=False).encode()
            path.write_bytes(gzip.compress(content, mtime=0) if name.endswith(".gz") else content)

    return Kind(
        write, lambda folder: table_files.read_table(f"{folder}/{name}", source="--train_file")
    )


KINDS = {
    "classifier": Kind(write_model, predict),
    "embedder": Kind(write_embedder, predict),
    "tf1": Kind(lambda folder: write_model(folder, "tf1"), predict),
    "onnx": Kind(lambda folder: write_export(folder, format="onnx"), predict),
    "records": Kind(write_records, read_records),
    "packed records": Kind(write_packed_metadata, read_metadata),
    **{name: table(name) for name in ("t.tsv", "t.tsv.gz", "t.jsonl", "t.parquet", "t.arrow")},
}
SAVED_MODEL = Kind(write_export, lambda folder: predict(f"{folder}/1"))


def damage(path: pathlib.Path, rng: random.Random) -> str:
    """Damages a file, and says how."""
    content = bytearray(path.read_bytes())
    if path.suffix == ".json" and rng.random() < 0.8:
        return damage_json(path, rng)
    how = rng.choice(["change", "zero", "cut", "insert", "remove"])
    start = rng.randrange(len(content))
    end = min(len(content), start + rng.randint(1, 40))
    if how == "change":
        for _ in range(rng.randint(1, 8)):
            content[rng.randrange(len(content))] = rng.randrange(256)
    elif how == "zero":
        content[start:end] = bytes(end - start)
    elif how == "cut":
        del content[start:]
    elif how == "insert":
        content[start:start] = rng.randbytes(end - start)
    else:
        del content[start:end]
    path.write_bytes(content)
    return f"{how} at {start}"


def damage_json(path: pathlib.Path, rng: random.Random) -> str:
    """Replaces or removes a value of a JSON file."""
    content = json.loads(path.read_text())
    places = list(places_in(content))
    if not places:
        path.write_text(json.dumps(rng.choice(OTHER_VALUES)))
        return "another value"
    container, key = rng.choice(places)
    value = rng.choice(OTHER_VALUES)
    is_removed = rng.random() < 0.2
    if is_removed:
        del container[key]
    else:
        container[key] = value
    path.write_text(json.dumps(content))
    return f"{key!r} {'removed' if is_removed else repr(value)[:40]}"


def places_in(value: Any):
    """The containers and keys of all values in a value of JSON; of a long list, only some."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(pairs)[:20]:
        yield value, key
        if isinstance(inner, dict | list):
            yield from places_in(inner)


def check(kind: Kind, folder: pathlib.Path, tmp_path: pathlib.Path, num_cases: int) -> None:
    """Damages a file of copies of a folder, and reads them."""
    intact = sorted(path for path in folder.rglob(kind.may_be_damaged) if path.is_file())
    kind.read(str(folder))
    num_rejected = 0
    tracebacks = []
    for case in range(num_cases):
        copy = tmp_path / f"case-{case}"
        shutil.copytree(folder, copy)
        rng = random.Random(zlib.crc32(f"{kind.read.__name__} {case}".encode()))
        path = copy / rng.choice(intact).relative_to(folder)
        how = damage(path, rng)
        try:
            kind.read(str(copy))
        except UserError as error:
            num_rejected += 1
            line = str(error)
            assert len(line.splitlines()) == 1 and len(line) < 1000, line
            assert str(copy) in line or "--train_file" in line, line
        except Exception as error:
            tracebacks.append(f"{path.name}: {how}: {error!r}")
        shutil.rmtree(copy)
    assert num_rejected and not tracebacks, "\n".join(tracebacks)


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Callable[[str, Kind], pathlib.Path]:
    """A function that writes the files of a kind once, and returns their folder."""
    folders: dict[str, pathlib.Path] = {}

    def folder_of(name: str, kind: Kind) -> pathlib.Path:
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp("intact")
            kind.write(folders[name])
        return folders[name]

    return folder_of


@pytest.mark.parametrize("num_cases", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", KINDS)
def test_a_damaged_file_is_read_or_rejected_in_one_line(written, tmp_path, name, num_cases):
    check(KINDS[name], written(name, KINDS[name]), tmp_path, num_cases)


@pytest.mark.slow
def test_a_damaged_saved_model_is_read_or_rejected_in_one_line(written, tmp_path):
    check(SAVED_MODEL, written("saved_model", SAVED_MODEL), tmp_path, MANY)
