"""The data of the small tasks: finds files in --data_dir, makes those that are made from them, describes a model.

The functions of tasks return flags with paths. `test_file`, which programs do not know, names the file of the scores if
they are not those of the development file.
"""

import json
import pathlib
from collections.abc import Callable
from typing import Any

from albert_tf.core import files as core_files
from albert_tf.core.errors import UserError
from albert_tf.tasks.tagging import conll, entities
from albert_tf.tasks.tagging.settings import FIRST, LAST, SEPARATORS
from lab.small_tasks import chinese

Files = dict[str, str]
Finder = Callable[[pathlib.Path, pathlib.Path], Files]

SQUAD_TRAIN_ARTICLES = 40
_PASSAGE_WORDS, _PASSAGES, _AUTHORS = 45, 500, 6


def files(train: str, dev: str) -> Finder:
    """A training and a development file."""
    return lambda data_dir, _: {
        "train_file": existing(data_dir / train),
        "eval_file": existing(data_dir / dev),
    }


def folder(name: str) -> Finder:
    """A folder that the program itself understands."""
    return lambda data_dir, _: {"data_dir": existing(data_dir / name)}


def existing(*paths: pathlib.Path) -> str:
    """The first path that exists.

    Raises:
      UserError: none does.
    """
    if found := next((path for path in paths if path.exists()), None):
        return str(found)
    raise UserError(f"--data_dir: has no {' and no '.join(map(str, paths))}")


def glue(name: str) -> Finder:
    """A task of GLUE, whole (glue/) or a part of it (glue_partial/)."""

    def find(data_dir: pathlib.Path, _: pathlib.Path) -> Files:
        parents = [data_dir / "glue" / name, data_dir / "glue_partial" / name]
        train = existing(*(parent / "train.tsv" for parent in parents))
        return {"task_name": name, "data_dir": str(pathlib.Path(train).parent)}

    return find


def squad(data_dir: pathlib.Path, folder: pathlib.Path) -> Files:
    """SQuAD 1.1; without its training file, the first 40 articles of the development file are for training."""
    train, dev = (data_dir / "squad" / f"{name}-v1.1.json" for name in ("train", "dev"))
    if not train.exists():
        articles = json.loads(pathlib.Path(existing(dev)).read_text())["data"]
        parts = {"train": articles[:SQUAD_TRAIN_ARTICLES], "dev": articles[SQUAD_TRAIN_ARTICLES:]}
        for name, part in parts.items():
            content = json.dumps({"version": "1.1", "data": part})
            core_files.write_bytes(str(folder / f"{name}.json"), content.encode())
        train, dev = folder / "train.json", folder / "dev.json"
    return {"train_file": str(train), "eval_file": existing(dev)}


def entity_types(name: str, separator: str) -> Finder:
    """Sentences, and the types of the entities in each; development sentences are for thresholds and scores in turn."""

    def make(data_dir: pathlib.Path, folder: pathlib.Path) -> Files:
        parts = {}
        for split in ("train", "dev"):
            file = read_tags(existing(data_dir / "tagging" / name / f"{split}.conll"))
            parts[split] = [
                (
                    SEPARATORS[separator].join(sentence.words),
                    ",".join(sorted({entity.type for entity in entities.entities_of(tags)})),
                )
                for sentence, tags in zip(file.sentences, file.tags, strict=True)
            ]
        parts["dev"], parts["test"] = parts["dev"][::2], parts["dev"][1::2]
        return _write_tables(folder, "text\ttypes", parts)

    return make


def read_tags(path: str) -> conll.TaggedFile:
    """A file in the format of CoNLL."""
    columns = {"token_column": FIRST, "tag_column": LAST}
    return conll.read_tagged(path, **columns, need_tags=True, flag="data_dir")


def shopping(data_dir: pathlib.Path, folder: pathlib.Path) -> Files:
    """Chinese reviews with one of ten categories of goods."""
    table = existing(data_dir / "chinese" / "online_shopping_10_cats.csv")
    return _write_tables(folder, "text\tcategory", chinese.shopping_parts(pathlib.Path(table)))


def authors(data_dir: pathlib.Path, folder: pathlib.Path) -> Files:
    """Passages of the authors with the most text; those of the last sixth of each book are for development.

    Files of books are named AUTHOR-TITLE.txt.
    """
    parts: dict[str, dict[str, list[str]]] = {"train": {}, "dev": {}}
    for path in sorted(pathlib.Path(existing(data_dir / "text" / "gutenberg")).glob("*.txt")):
        words = path.read_text(errors="replace").split()
        starts = range(_PASSAGE_WORDS, len(words) - _PASSAGE_WORDS, _PASSAGE_WORDS)
        for start in starts:  # the first passage names the author
            part = parts["train" if start < 5 / 6 * len(words) else "dev"]
            text = " ".join(words[start : start + _PASSAGE_WORDS])
            part.setdefault(path.stem.partition("-")[0], []).append(text)
    sizes = {author: len(passages) for author, passages in parts["train"].items()}
    rows: dict[str, list[tuple[str, str]]] = {"train": [], "dev": []}
    for author in sorted(sorted(sizes, key=sizes.__getitem__)[-_AUTHORS:]):
        for part, most in (("train", _PASSAGES * 4 // 5), ("dev", _PASSAGES // 5)):
            passages = parts[part][author]
            step = max(1, len(passages) // most)
            rows[part] += [(text, author) for text in passages[::step][:most]]
    return _write_tables(folder, "text\tauthor", rows)


def _write_tables(folder: pathlib.Path, header: str, parts: dict[str, list]) -> Files:
    """Writes a tab-separated file for each part of the data."""
    flags = {"train": "train_file", "dev": "eval_file", "test": "test_file"}
    for name, rows in parts.items():
        text = "\n".join([header, *map("\t".join, rows), ""])
        core_files.write_bytes(str(folder / f"{name}.tsv"), text.encode())
    return {flags[name]: str(folder / f"{name}.tsv") for name in parts}


def facts_of_model(model: str) -> dict[str, Any]:
    """The sizes, vocabulary and case of a model."""
    from albert_tf.formats import pretrained

    weights = pretrained.read_weights(model)
    config = json.loads(weights.config.to_json_string())
    return {"model": model, "config": config, "vocabulary": weights.vocabulary, **weights.cleaning}
