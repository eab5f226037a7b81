"""Files and folders are complete or absent, here and through TensorFlow's file systems."""

import os
import signal

import pytest

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.data_prep.corpus import expand_paths
from tests.helpers import run_script

# Remote paths are read and written through TensorFlow.
PLACES = pytest.mark.parametrize("scheme", ["", "file://"], ids=["local", "remote"])


@PLACES
def test_what_is_written_is_read(tmp_path, scheme):
    folder = f"{scheme}{tmp_path}/new/folder"
    files.write_bytes(f"{folder}/a", b"old")
    files.write_files(folder, {"a": b"new", "b": b"\x00\xff"})
    assert files.names_in(folder) == ["a", "b"]
    assert [files.read_bytes(f"{folder}/{name}") for name in "ab"] == [b"new", b"\x00\xff"]
    assert files.exists(folder) and files.is_folder(folder)
    assert files.exists(f"{folder}/a") and not files.is_folder(f"{folder}/a")
    assert files.size_and_time(f"{folder}/a")[0] == 3 and not files.exists(f"{folder}/c")
    assert sorted(os.listdir(tmp_path / "new" / "folder")) == ["a", "b"]
    with files.open_binary(f"{folder}/a") as file:
        file.seek(1)
        assert (file.read(1), file.tell(), file.read()) == (b"e", 2, b"w")
    for _ in range(2):
        files.remove(f"{scheme}{tmp_path}/new")
    assert not os.path.exists(tmp_path / "new")


def test_an_output_file_is_complete_or_absent(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with files.OutputFile("a") as output:
        output.write(memoryview(b"abc"))
        assert not files.exists("a")
    with pytest.raises(KeyError), files.OutputFile("a") as output:
        output.write(b"x")
        raise KeyError
    assert files.read_bytes("a") == b"abc" and os.listdir() == ["a"] and output.num_bytes == 1
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="^folder: cannot be written .*folder"):
        files.write_bytes("folder", b"x")


@PLACES
def test_files_are_found_in_the_same_order_everywhere(tmp_path, scheme):
    for name in ("b/1", "b/.hidden/x", "a", "c", ".d", "b/a/2"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    folder, below = f"{scheme}{tmp_path}", ["a", "c", "b/1", "b/a/2"]
    assert [path.removeprefix(f"{folder}/") for path in expand_paths(folder)] == below
    assert files.matching(f"{folder}/[ab]") == [f"{folder}/a", f"{folder}/b"]
    (tmp_path / "[ab]").write_text("x")
    assert files.matching(f"{folder}/[ab]") == [f"{folder}/[ab]"]


def test_all_names_of_a_file_have_the_same_real_path(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    assert files.real_path(f"{tmp_path}/link/b") == files.real_path(f"{tmp_path}/x/..//disk/./b")
    assert files.real_path("gs://b/a/../c//d/./e") == "gs://b/c/d/e"


@PLACES
def test_errors_are_one_line_with_the_path(tmp_path, scheme):
    missing = f"{scheme}{tmp_path}/x"
    with pytest.raises(UserError, match=rf"^{missing}: cannot be read \(.*No such file.*\)$"):
        files.read_bytes(missing)
    with pytest.raises(KeyError), files.errors_named("x", "read"):
        raise KeyError
    assert str(UserError("a\x1b[31m\nb\u202e é 一")) == "a\\x1b[31m\\nb\\u202e é 一"


@PLACES
def test_a_folder_replaces_a_folder_when_it_is_complete(tmp_path, scheme):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "old").write_text("old")
    with pytest.raises(KeyError), files.staged(f"{scheme}{tmp_path}") as staging:
        files.write_bytes(f"{staging}/model/new", b"new")
        raise KeyError
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["model", "old"]
    with files.staged(f"{scheme}{tmp_path}") as staging:
        files.write_bytes(f"{staging}/model/variables/new", b"new")
        assert [path.name for path in tmp_path.glob("model/*")] == ["old"]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["model", "new", "variables"]


def test_what_a_killed_process_leaves_is_replaced_by_the_next(tmp_path):
    program = (
        "import os, signal, sys; from albert_tf.core import files\n"
        "folder = sys.argv[1]\n"
        "with files.staged(folder) as staging, files.OutputFile(folder + '/b') as output:\n"
        "    files.write_bytes(staging + '/a', b'half')\n"
        "    output.write(b'half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert run_script("-c", program, tmp_path).returncode == -signal.SIGKILL
    assert files.names_in(str(tmp_path)) == [] and os.listdir(tmp_path)
    files.write_bytes(f"{tmp_path}/b", b"whole")
    files.write_files(str(tmp_path), {"a": b"whole"})
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == dict.fromkeys("ab", "whole")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"a": 1', "not usable as JSON"),
        (b"[1]", "expected a JSON object, got"),
        (b'{"a": "\\ud800"}', "surrogates not allowed"),
        (b"[" * 100_000, "not usable as JSON"),
        ('{"a": 1}'.encode("utf-16"), "codec can't decode"),
    ],
)
def test_a_text_that_is_no_usable_json_is_one_line(content, reason):
    with pytest.raises(UserError, match=f"^x.json: .*{reason}"):
        files.parse_json(content, "x.json")
    assert files.parse_json(b'\xef\xbb\xbf{"a": "\\ud83d\\ude00"}', "x") == {"a": "\U0001f600"}
