"""Making features in parallel, and keeping them: same result, no stale, half or damaged file."""

import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import numpy as np
import pytest

import albert_tf
from albert_tf.core.errors import UserError
from albert_tf.data import feature_cache
from albert_tf.data.feature_table import FeatureTable
from tests.data.test_feature_table import assert_equal_tables

# Not from conftest, which imports TensorFlow: the worker processes of these tests import this file.
ROOT = pathlib.Path(albert_tf.__file__).parent.parent


def write_files(folder: pathlib.Path, files: dict[str, str]) -> None:
    """Writes files, by their names, and the folders in them."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, "utf-8")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the functions below share."""

    factor: int
    refused: int = -1


def multiples(settings: Settings, items: list[int]) -> FeatureTable:
    """For each item n, n % 5 + 1 multiples of it, and the process that made them."""
    if settings.refused in items:
        raise UserError(f"item {settings.refused} is wrong")
    rows = [[settings.factor * item] * (item % 5 + 1) for item in items]
    return FeatureTable.from_rows(
        {"input_ids": rows},
        {"process": [os.getpid() for _ in items], "chunk": [len(items)] * len(rows)},
    )


def numbered(_settings: Settings, items: list[tuple[int, str]]) -> FeatureTable:
    """Features that depend on where the items are."""
    return FeatureTable.from_rows({"input_ids": [[index] for index, _ in items]}, {})


def build(function=multiples, items=range(103), settings=Settings(3), **options):
    values = {"description": "numbers", "num_workers": 2, "chunk_size": 10}
    return feature_cache.build(function, settings, list(items), **{**values, **options})


# Building.


def test_workers_change_nothing():
    alone = build(num_workers=1)
    parallel = build(seconds_alone=0)
    assert set(alone.columns["process"].ravel()) == {os.getpid()}
    assert os.getpid() not in parallel.columns["process"]
    assert alone.columns["chunk"].ravel().tolist() == [10] * 100 + [3] * 3
    for name in ("sequences", "row_splits"):
        np.testing.assert_equal(getattr(parallel, name), getattr(alone, name))
    np.testing.assert_array_equal(parallel.columns["chunk"], alone.columns["chunk"])
    expected = [3 * item for item in range(103) for _ in range(item % 5 + 1)]
    assert alone.sequences["input_ids"].tolist() == expected


def test_small_jobs_stay_in_this_process():
    assert set(build().columns["process"].ravel()) == {os.getpid()}


def test_workers_take_over_where_this_process_stopped():
    def parts(table):
        return table.columns["process"].ravel() == os.getpid()

    table = build(slow_multiples, seconds_alone=0.05)
    here = parts(table)
    assert here[:10].all()  # the first chunk at least
    assert not here[-10:].any()
    np.testing.assert_array_equal(table.sequences["input_ids"], build().sequences["input_ids"])


def slow_multiples(settings: Settings, items: list[int]) -> FeatureTable:
    """As `multiples`, and it takes longer."""
    time.sleep(0.03)
    return multiples(settings, items)


@pytest.mark.parametrize("seconds_alone", [0, 10])
def test_items_may_know_their_index(seconds_alone):
    items = list(enumerate("abcdefg"))
    table = build(numbered, items, chunk_size=3, seconds_alone=seconds_alone)
    assert table.sequences["input_ids"].tolist() == list(range(7))


def test_no_items_give_an_empty_table():
    table = build(items=[])
    assert len(table) == 0
    assert list(table.columns) == ["process", "chunk"]


@pytest.mark.parametrize("seconds_alone", [0, 10])
def test_a_mistake_in_an_item_reaches_the_user(seconds_alone):
    with pytest.raises(UserError, match="item 57 is wrong"):
        build(settings=Settings(3, refused=57), seconds_alone=seconds_alone)


def test_progress_is_shown(capsys, monkeypatch):
    monkeypatch.setattr(feature_cache, "SECONDS_BETWEEN_LINES", 0)
    build(num_workers=1)
    lines = capsys.readouterr().out.splitlines()
    assert [re.search(r"numbers (\d+)/103 examples", line)[1] for line in lines] == [
        *map(str, range(10, 101, 10)),
        "103",
    ]


# The cache.


class Maker:
    """Makes a table, and counts how often."""

    def __init__(self, factor: int = 3):
        self.calls = 0
        self.table = multiples(Settings(factor), [4, 0, 7])

    def __call__(self) -> FeatureTable:
        self.calls += 1
        return self.table


def cached(folder, maker, **key):
    return feature_cache.cached(str(folder), {"length": 512, **key}, maker, description="dev")


def test_features_are_made_once(tmp_path, capsys):
    folder, maker = tmp_path / "a" / "b", Maker()
    first = cached(folder, maker)
    second = cached(folder, maker)
    assert maker.calls == 1
    assert_equal_tables(second, first)
    (file,) = folder.glob("*.npz")
    made, found = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"features of dev: 3 examples made in \d+\.\d s", made)
    assert found == f"features of dev: 3 examples from {file}"


def test_the_key_can_be_read_beside(tmp_path):
    cached(tmp_path, Maker(), level="high")
    file, key_file = sorted(tmp_path.iterdir(), reverse=True)
    assert file.stem == key_file.stem
    key = json.loads(key_file.read_text())
    assert (key["length"], key["level"]) == (512, "high")
    assert set(key["made_by"]) == {"code", "sentencepiece", "unicode"}


@pytest.mark.parametrize(
    "changes",
    [{"length": 256}, {"length": "512"}, {"length": 512.0}, {"lower": True}, {"files": ["a"]}],
    ids=str,
)
def test_a_changed_setting_never_reuses(tmp_path, changes):
    cached(tmp_path, Maker(3))
    other = Maker(5)
    assert_equal_tables(cached(tmp_path, other, **changes), other.table)
    assert other.calls == 1
    assert len(list(tmp_path.glob("*.npz"))) == 2


def test_changed_code_never_reuses(tmp_path):
    # The package is copied, so that its code can be changed.
    program = (
        "from albert_tf.data import feature_cache; from albert_tf.data.feature_table import FeatureTable\n"
        "make = lambda: FeatureTable.from_rows({'input_ids': [[1]]}, {})\n"
        f"feature_cache.cached({str(tmp_path / 'cache')!r}, {{}}, make, description='dev')\n"
    )
    for source in (ROOT / "albert_tf").rglob("*.py"):
        write_files(tmp_path, {str(source.relative_to(ROOT)): source.read_text("utf-8")})
    (tmp_path / "albert_tf/__init__.py").write_text("")

    def said() -> str:
        command = [sys.executable, "-B", "-c", program]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout

    assert "made in" in said()
    assert "from " in said()
    for file in ("text/tokenizer.py", "tasks/race/passages.py", "data/feature_table.py"):
        with open(tmp_path / "albert_tf" / file, "a") as changed:
            changed.write("# changed\n")
        assert "made in" in said()
        assert "from " in said()


def test_the_code_of_the_key_is_all_code_that_makes_features():
    program = (
        "import sys\n"
        "from albert_tf.tasks.classification import source\n"
        "from albert_tf.tasks.race import source\n"
        "from albert_tf.tasks.squad import source\n"
        "print(*(name for name in sys.modules if name.startswith('albert_tf.')))"
    )
    command = [sys.executable, "-c", program]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    # Of declarations of settings, only the values matter, which are in the key themselves.
    modules = [name.split(".") for name in output.split()]
    makers = [parts for parts in modules if parts[-1] not in ("settings", "config", "activations")]
    assert {parts[1] for parts in makers if len(parts) > 2} == set(feature_cache.CODE)


@pytest.mark.parametrize("damage", [b"", b"PK", None])
def test_a_damaged_file_is_made_again(tmp_path, capsys, damage):
    maker = Maker()
    cached(tmp_path, maker)
    (file,) = tmp_path.glob("*.npz")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
    capsys.readouterr()
    assert_equal_tables(cached(tmp_path, maker), maker.table)
    warning, made = capsys.readouterr().out.splitlines()
    assert warning.startswith(f"{file} cannot be used, so these features are made again")
    assert "made in" in made
    assert maker.calls == 2
    assert file.read_bytes() == whole


def test_without_a_folder_nothing_is_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    maker = Maker()
    for _ in range(2):
        assert_equal_tables(cached("", maker), maker.table)
    assert maker.calls == 2
    assert not list(tmp_path.iterdir())
    assert capsys.readouterr().out.count("made in") == 2


def test_a_folder_that_cannot_be_written_is_no_obstacle(tmp_path, capsys):
    (tmp_path / "file").write_text("not a folder")
    maker = Maker()
    assert_equal_tables(cached(tmp_path / "file" / "cache", maker), maker.table)
    made, warning = capsys.readouterr().out.splitlines()
    assert "made in" in made
    assert re.search(
        r"\.npz cannot be written, so these features are not kept: Not a directory", warning
    )


def test_a_failure_leaves_nothing(tmp_path):
    def fail():
        raise UserError("row 3 is wrong")

    with pytest.raises(UserError, match="row 3"):
        feature_cache.cached(str(tmp_path), {}, fail, description="dev")
    assert not list(tmp_path.iterdir())
