"""Makes the features of a data set, in several processes if that is faster, and keeps them in files for other runs."""

import contextlib
import hashlib
import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from albert_tf.core import files
from albert_tf.core.progress import Progress
from albert_tf.core.workers import Workers, in_chunks
from albert_tf.data.feature_table import FeatureTable
from albert_tf.text.tokenizer import made_by

SECONDS_BETWEEN_LINES = 5

# All packages that the functions making features import: a change of any file in them changes every key.
CODE = ("core", "data", "tasks", "text")


def build(
    function: Callable[[Any, Sequence], FeatureTable],
    shared: Any,
    items: Sequence,
    *,
    description: str,
    num_workers: int | None,
    chunk_size: int,
    seconds_alone: float = 2,
) -> FeatureTable:
    """Makes the features of all items chunk by chunk, and shows progress.

    This process begins alone. After `seconds_alone`, worker processes make the rest; they are not started at once
    because that may take a second. Neither the workers nor `chunk_size` change the result.

    Args:
      function: `function(shared, chunk)` makes the table of a list of items. It is a function of a module, so that
        workers can import it. If it needs the items' indices, they must be in the items: `list(enumerate(items))`.
      shared: settings, sent to each process once.
      num_workers: number of processes; 0 is one for every core, and 1 is this process alone.
    """
    if not items:
        return function(shared, [])
    chunks = in_chunks(items, lambda _item: 1, chunk_size)
    tables: list[FeatureTable] = []
    shown = Progress(
        description, len(items), unit="examples", seconds_between_lines=SECONDS_BETWEEN_LINES
    )
    with shown as progress, Workers(num_workers, shared) as workers:
        here = (function(shared, chunk) for chunk in _for_seconds(chunks, seconds_alone))
        for table in itertools.chain(here, workers.map(function, chunks)):
            tables.append(table)
            progress.update(min(len(tables) * chunk_size, len(items)))
    return FeatureTable.concatenate(tables)


def _for_seconds(chunks: Iterator, seconds: float) -> Iterator:
    end = time.monotonic() + seconds
    while time.monotonic() < end and (chunk := next(chunks, None)):
        yield chunk


def cached(
    folder: str, key: Mapping[str, Any], make: Callable[[], FeatureTable], *, description: str
) -> FeatureTable:
    """Features from the file of an earlier run with the same key; without such a file, they are made and kept in one.

    The code that makes features and the versions of its libraries are part of every key. For each file, a JSON file of
    the same name contains its key. The function prints where the features come from.

    Args:
      folder: created if it does not exist; if its name is empty, no file is kept.
      key: JSON values for everything else that the features depend on: settings, a hash of the data.
    """
    if not folder:
        return _made(make, description)
    with contextlib.suppress(OSError):
        files.remove_leftovers(folder)
    readable_key = json.dumps({**key, "made_by": made_by(CODE)}, indent=2, sort_keys=True) + "\n"
    path = f"{folder.rstrip('/')}/{hashlib.sha256(readable_key.encode()).hexdigest()[:32]}"
    table = _read(f"{path}.npz", readable_key)
    if table is not None:
        print(f"features of {description}: {len(table):,} examples from {path}.npz", flush=True)
        return table
    table = _made(make, description)
    _write(path, table, readable_key)
    return table


def _made(make: Callable[[], FeatureTable], description: str) -> FeatureTable:
    started = time.monotonic()
    table = make()
    taken = time.monotonic() - started
    print(f"features of {description}: {len(table):,} examples made in {taken:.1f} s", flush=True)
    return table


def _read(path: str, readable_key: str) -> FeatureTable | None:
    try:
        return FeatureTable.from_file(path, readable_key) if files.exists(path) else None
    except ValueError as error:
        print(f"{path} cannot be used, so these features are made again: {error}", flush=True)
        return None


def _write(path: str, table: FeatureTable, readable_key: str) -> None:
    folder, name = path.rsplit("/", 1)
    contents = {f"{name}.npz": table.to_bytes(readable_key), f"{name}.json": readable_key.encode()}
    try:
        files.write_files(folder, contents)
    except OSError as error:
        reason = f"so these features are not kept: {error.strerror}"
        print(f"{path}.npz cannot be written, {reason}", flush=True)
