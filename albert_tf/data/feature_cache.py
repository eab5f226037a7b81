"""Features of a data set: made by worker processes where that pays, and kept in files for further runs."""

import hashlib
import itertools
import json
import pathlib
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import sentencepiece

from albert_tf.core import files
from albert_tf.core.progress import Progress
from albert_tf.core.workers import Workers, in_chunks
from albert_tf.data.feature_table import FeatureTable

SECONDS_BETWEEN_LINES = 5


def build(
    function: Callable[[Any, Sequence], FeatureTable],
    shared: Any,
    items: Sequence,
    *,
    description: str,
    num_workers: int,
    chunk_size: int,
    seconds_alone: float = 2,
) -> FeatureTable:
    """The features of all items, made chunk by chunk, with progress shown.

    This process begins. Only when it has worked for `seconds_alone` do worker processes, which may take a second
    to start, do the rest; neither they nor `chunk_size` change the result.

    Args:
      function: `function(shared, chunk)` gives the table of a list of items; of a module, so that workers find it.
        Where it needs to know which items these are, the items must say so: `list(enumerate(items))`.
      shared: settings, sent to each process once.
      items: what there are features of, in order.
      description: what the progress calls the job.
      num_workers: number of processes; 0 is one for every core, and with 1 this process does it all.
      chunk_size: items of a call.
      seconds_alone: as above.

    Raises:
      UserError: `function` has raised it, or a worker was killed by the system.
    """
    if not items:
        return function(shared, [])
    chunks = in_chunks(items, lambda _item: 1, chunk_size)
    tables = []
    done = 0
    with (
        Progress(
            description, len(items), unit="examples", seconds_between_lines=SECONDS_BETWEEN_LINES
        ) as progress,
        Workers(num_workers, shared) as workers,
    ):
        alone = _for_seconds(chunks, seconds_alone)
        here = (function(shared, chunk) for chunk in alone)
        for table in itertools.chain(here, workers.map(function, chunks)):
            tables.append(table)
            done = min(done + chunk_size, len(items))
            progress.update(done)
    return FeatureTable.concatenate(tables)


def _for_seconds(chunks: Iterator, seconds: float) -> Iterator:
    started = time.monotonic()
    while time.monotonic() - started < seconds:
        try:
            yield next(chunks)
        except StopIteration:
            return


def cached(
    folder: str, key: Mapping[str, Any], make: Callable[[], FeatureTable], *, description: str
) -> FeatureTable:
    """Features from a file of an earlier run, if there is one of exactly this key; otherwise made, and kept.

    The code that makes features, and the versions of what it stands on, are part of every key. Beside each file, a
    JSON file of the same name says what its key was. Prints where the features come from.

    Args:
      folder: made if it does not exist; empty: nothing is kept.
      key: everything else that the features depend on: settings, a hash of the data; JSON values.
      make: makes the features.
      description: what the printed line calls them.

    Raises:
      UserError: `make` has raised it.
    """
    if not folder:
        return _made(make, description)
    readable_key = json.dumps({**key, "made_by": _made_by()}, indent=2, sort_keys=True) + "\n"
    path = f"{folder.rstrip('/')}/{hashlib.sha256(readable_key.encode()).hexdigest()[:32]}"
    table = _read(f"{path}.npz")
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


def _made_by() -> dict[str, str]:
    """What features depend on besides settings and data."""
    package = pathlib.Path(__file__).parents[1]
    sources = [
        *package.glob("data/feature_*.py"),
        *package.glob("tasks/**/*.py"),
        *package.glob("text/*.py"),
    ]
    code = hashlib.sha256()
    for source in sorted(map(pathlib.Path, sources)):
        code.update(hashlib.sha256(source.read_bytes()).digest())
    return {
        "code": code.hexdigest(),
        "sentencepiece": sentencepiece.__version__,
        "unicode": unicodedata.unidata_version,
    }


def _read(path: str) -> FeatureTable | None:
    try:
        return FeatureTable.from_file(path) if files.exists(path) else None
    except ValueError as error:
        print(f"{path} cannot be used, so these features are made anew: {error}", flush=True)
        return None


def _write(path: str, table: FeatureTable, readable_key: str) -> None:
    try:
        folder, name = path.rsplit("/", 1)
        contents = {f"{name}.npz": table.to_bytes(), f"{name}.json": readable_key.encode()}
        files.write_files(folder, contents)
    except OSError as error:
        print(
            f"{path}.npz cannot be written, so these features are not kept: {error.strerror}",
            flush=True,
        )
