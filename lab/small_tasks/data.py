"""The data of the small tasks: finds files in --data_dir, makes those that are made from them, describes a model.

The functions of tasks return flags with paths.
"""

import json
import pathlib
from collections.abc import Callable
from typing import Any

from albert_tf.core import files as core_files
from albert_tf.core.errors import UserError

Files = dict[str, str]
Finder = Callable[[pathlib.Path, pathlib.Path], Files]

SQUAD_TRAIN_ARTICLES = 40


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


def facts_of_model(model: str) -> dict[str, Any]:
    """The sizes, vocabulary and case of a model."""
    from albert_tf.formats import pretrained

    weights = pretrained.read_weights(model)
    config = json.loads(weights.config.to_json_string())
    return {"model": model, "config": config, "vocabulary": weights.vocabulary, **weights.cleaning}
