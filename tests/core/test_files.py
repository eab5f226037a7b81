"""Files and folders are whole or absent: after exceptions, kills, full disks, and with several writers."""

import glob
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.data import record_set
from albert_tf.training import run_folder
from albert_tf.training.settings import OptimizerConfig, RunConfig
from tests.formats.test_pretrained import files_at_most
from tests.helpers import ROOT

# Remote paths are read and written through TensorFlow.
PLACES = pytest.mark.parametrize("scheme", ["", "file://"], ids=["local", "remote"])


def run(code: str, *arguments: object) -> subprocess.Popen:
    """A process that runs code with `files` imported, and the arguments as `args`."""
    code = f"import os, signal, sys, time\nfrom albert_tf.core import files\nargs = sys.argv[1:]\n{code}"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def killed(code: str, *arguments: object) -> None:
    assert status(run(code, *arguments)) == -signal.SIGKILL


def status(process: subprocess.Popen) -> int:
    process.communicate(timeout=120)
    return process.returncode


def hidden(folder: pathlib.Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


@PLACES
def test_what_is_written_is_read(tmp_path, scheme):
    folder = f"{scheme}{tmp_path}/new/folder"
    files.write_bytes(f"{folder}/a", b"old")
    files.write_files(folder, {"a": b"new", "b": b"\x00\xff"})
    assert files.names_in(folder) == ["a", "b"]
    assert [files.read_bytes(f"{folder}/{name}") for name in "ab"] == [b"new", b"\x00\xff"]
    assert files.exists(folder) and files.is_folder(folder)
    assert files.exists(f"{folder}/a") and not files.is_folder(f"{folder}/a")
    assert not files.exists(f"{folder}/c")
    assert sorted(os.listdir(tmp_path / "new" / "folder")) == ["a", "b"]


@PLACES
def test_an_output_file_is_complete_or_absent(tmp_path, scheme):
    path = f"{scheme}{tmp_path}/new/a"
    assert files.status(path) is None
    with files.OutputFile(path) as output:
        output.write(memoryview(b"abc"))
        output.write(b"def")
        assert not files.exists(path)
    assert (output.num_bytes, output.sha256.hexdigest()) == (6, files.sha256(path))
    assert files.status(path).length == 6 and files.status(path).mtime_nsec > 1e18
    with files.open_binary(path) as file:
        file.seek(2)
        assert (file.read(2), file.tell(), file.read()) == (b"cd", 4, b"ef")
    with pytest.raises(KeyError), files.OutputFile(path) as output:
        output.write(b"x")
        raise KeyError
    assert files.read_bytes(path) == b"abcdef"
    with pytest.raises(UserError, match=f"{tmp_path}/new: cannot be written .*folder"):
        files.OutputFile(f"{scheme}{tmp_path}/new").__enter__()
    files.remove(f"{scheme}{tmp_path}/new")
    files.remove(f"{scheme}{tmp_path}/new")
    assert not os.path.exists(tmp_path / "new")


@PLACES
def test_files_are_found_in_the_same_order_everywhere(tmp_path, scheme):
    for name in ("b/1", "b/.hidden/x", "a", "c", ".d", "b/a/2"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    folder = f"{scheme}{tmp_path}"
    below = [path.removeprefix(f"{folder}/") for path in files.files_below(folder)]
    assert below == ["a", "c", "b/1", "b/a/2"]
    assert files.matching(f"{folder}/[ab]") == [f"{folder}/a", f"{folder}/b"]
    (tmp_path / "[ab]").write_text("x")
    assert files.matching(f"{folder}/[ab]") == [f"{folder}/[ab]"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [("gs://b/a/../c//d/./e", "gs://b/c/d/e"), ("/nowhere/x/../y//z", "/nowhere/y/z")],
)
def test_the_real_path_of_all_names_of_a_file_is_the_same(path, expected):
    assert files.real_path(path) == expected


def test_case_counts_only_where_the_disk_distinguishes_it(tmp_path):
    (tmp_path / "disk").mkdir()
    assert files.real_path(f"{tmp_path}/disk/A") != files.real_path(f"{tmp_path}/disk/a")
    (tmp_path / "DISK").symlink_to(tmp_path / "disk")  # as on a disk that ignores case
    assert files.real_path(f"{tmp_path}/disk/A") == files.real_path(f"{tmp_path}/disk/a")
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    assert files.real_path(f"{tmp_path}/link/b") == files.real_path(f"{tmp_path}/disk/b")


def test_an_error_shows_only_characters_that_can_be_printed():
    assert str(UserError("a\x1b[31m\nb\u202e é 一")) == "a\\x1b[31m\\nb\\u202e é 一"


@PLACES
def test_errors_are_one_line_with_the_path(tmp_path, scheme):
    missing = f"{scheme}{tmp_path}/x"
    with pytest.raises(UserError, match=rf"^{missing}: cannot be read \(.*No such file.*\)$"):
        files.read_bytes(missing)
    with pytest.raises(KeyError), files.errors_named("x", "read"):
        raise KeyError


def test_a_relative_path_without_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files.write_bytes("a", b"x")
    assert os.listdir() == ["a"]
    files.remove_leftovers("")


@PLACES
def test_a_folder_replaces_a_folder(tmp_path, scheme):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "old").write_text("old")
    with files.staged(f"{scheme}{tmp_path}") as staging:
        os.makedirs(f"{staging.removeprefix(scheme)}/model/variables")
        files.write_bytes(f"{staging}/model/variables/new", b"new")
        assert [path.name for path in tmp_path.rglob("model/*")] == ["old", "variables"]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["model", "new", "variables"]


@PLACES
def test_a_folder_is_not_replaced_by_a_file(tmp_path, scheme):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "kept").write_text("old")
    with pytest.raises(OSError):
        files.write_bytes(f"{scheme}{tmp_path}/a", b"x")
    assert [path.name for path in tmp_path.rglob("*")] == ["a", "kept"]


@PLACES
@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt, FileNotFoundError, UserError])
def test_an_exception_leaves_the_old_files(tmp_path, scheme, error):
    (tmp_path / "a").write_text("old")
    with pytest.raises(error, match="of the block"), files.staged(f"{scheme}{tmp_path}") as staging:
        files.write_bytes(f"{staging}/a", b"new")
        files.write_bytes(f"{staging}/b", b"new")
        raise error("of the block")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_an_old_folder_returns_if_the_new_one_cannot_be_moved(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "old").write_text("old")
    replace = os.replace

    def refuse(path, new_path):
        if new_path == str(tmp_path / "model") and os.path.exists(f"{path}/new"):
            raise PermissionError(1, "rejected", path)
        replace(path, new_path)

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(PermissionError) as raised, files.staged(str(tmp_path)) as staging:
        files.write_bytes(f"{staging}/model/new", b"new")
    assert raised.value.filename == str(tmp_path / "model")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["model", "old"]


# --- Full disks ---


@PLACES
def test_a_full_disk_is_named_with_the_final_path(tmp_path, scheme):
    path = f"{scheme}{tmp_path}/a"
    files.write_bytes(path, b"old")
    with files_at_most(1000), pytest.raises(OSError, match="File too large") as raised:
        files.write_bytes(path, b"x" * 5000)
    assert raised.value.filename == path
    assert (tmp_path / "a").read_text() == "old" and os.listdir(tmp_path) == ["a"]


@PLACES
def test_a_set_of_files_is_written_whole_or_not_at_all(tmp_path, scheme):
    files.write_files(f"{scheme}{tmp_path}", {"a": b"old", "c": b"old"})
    contents = {"a": b"new", "b": b"x" * 5000, "c": b"new"}
    with files_at_most(1000), pytest.raises(OSError, match=f"{tmp_path}/b"):
        files.write_files(f"{scheme}{tmp_path}", contents)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "old", "c": "old"}


def test_a_set_of_files_that_was_moved_in_part_is_completed_at_the_next_start(tmp_path):
    (tmp_path / "b").mkdir()  # a file cannot replace it
    with pytest.raises(OSError, match=f"{tmp_path}/b"):
        files.write_files(str(tmp_path), {"a": b"1", "b": b"2", "c": b"3"})
    (tmp_path / "b").rmdir()
    files.remove_leftovers(str(tmp_path))
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {"a": "1", "b": "2", "c": "3"}


def test_errors_of_tensorflow_name_the_final_path(tmp_path):
    import tensorflow as tf

    expected = pytest.raises(OSError, match=rf"Errno 27.*File too large: '{tmp_path}/ckpt")
    with expected as raised, files_at_most(1000), files.staged(str(tmp_path)) as staging:
        tf.raw_ops.SaveV2(
            prefix=f"{staging}/ckpt",
            tensor_names=["x"],
            shape_and_slices=[""],
            tensors=[tf.zeros([5000])],
        )
    assert "albert-tmp" not in str(raised.value)
    assert os.listdir(tmp_path) == []


def test_errors_of_other_files_keep_their_name(tmp_path):
    with pytest.raises(FileNotFoundError) as raised, files.staged(str(tmp_path / "new")):
        (tmp_path / "missing").read_bytes()
    assert str(raised.value.filename) == str(tmp_path / "missing")


def test_user_errors_name_the_final_path(tmp_path):
    expected = pytest.raises(UserError, match=f"^{tmp_path}/a: is empty")
    with expected, files.staged(str(tmp_path)) as staging:
        raise UserError(f"{staging}/a: is empty")


# --- Killed processes ---

WRITE_AND_DIE = """
with files.staged(args[0]) as staging:
    with open(f"{staging}/train.tfrecord", "w") as file:
        file.write("half")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_writer_leaves_the_old_file_and_no_name_that_readers_match(tmp_path):
    import tensorflow as tf

    (tmp_path / "train.tfrecord").write_text("old")
    killed(WRITE_AND_DIE, tmp_path)
    assert (tmp_path / "train.tfrecord").read_text() == "old"
    assert len(hidden(tmp_path)) == 1
    for match in (glob.glob, tf.io.gfile.glob):
        allowed = {f"{tmp_path}/train.tfrecord", *glob.glob(f"{tmp_path}/.albert-tmp-*/*")}
        for pattern in ("*.tfrecord*", "train*", "*/*.tfrecord", "?*train*"):
            assert set(match(f"{tmp_path}/{pattern}")) <= allowed
    assert files.names_in(str(tmp_path)) == ["train.tfrecord"]
    assert record_set._expand(f"{tmp_path}/*") == [f"{tmp_path}/train.tfrecord"]

    assert status(run("files.write_bytes(f'{args[0]}/other', b'x')", tmp_path)) == 0
    assert sorted(os.listdir(tmp_path)) == ["other", "train.tfrecord"]


def test_a_run_starts_in_a_folder_where_one_was_killed_before_it_wrote_its_settings(tmp_path):
    killed(WRITE_AND_DIE, tmp_path)
    run = RunConfig(output_dir=str(tmp_path))
    settings = {"run": run, "optimizer": OptimizerConfig()}
    run_folder.RunFolder(run, settings, is_chief=True).open()
    assert os.listdir(tmp_path) == ["config.json"]


DIE_AT_MOVE = """
folder, number = args[0], int(args[1])
replace = os.replace
def counted(path, new_path):
    global number
    number -= 1
    if number < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(path, new_path)
os.replace = counted
with files.staged(folder) as staging:
    os.mkdir(f"{staging}/model")
    for name in ("model/x", "model/y", "a"):
        with open(f"{staging}/{name}", "w") as file:
            file.write("new")
"""


@pytest.mark.parametrize("moves", range(4))
def test_a_move_that_was_killed_is_finished(tmp_path, moves):
    (tmp_path / "model").mkdir()
    for name in ("model/x", "model/z", "a"):
        (tmp_path / name).write_text("old")
    if moves < 3:
        killed(DIE_AT_MOVE, tmp_path, moves)
    else:
        assert status(run(DIE_AT_MOVE, tmp_path, moves)) == 0
    files.remove_leftovers(str(tmp_path))
    paths = ["a", "model", "model/x", "model/y"]
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == paths
    assert {(tmp_path / path).read_text() for path in paths if path != "model"} == {"new"}


# --- Several processes ---

WRITE_SLOWLY = """
with files.staged(args[0]) as staging:
    with open(f"{staging}/a", "w") as file:
        file.write(args[1] * 5000)
        file.flush()
        print("started", flush=True)
        time.sleep(float(args[2]))
        file.write(args[1] * 5000)
"""


def test_two_writers_of_a_file_do_not_mix(tmp_path):
    first = run(WRITE_SLOWLY, tmp_path, "1", 2)
    assert first.stdout.readline() == "started\n"
    second = run(WRITE_SLOWLY, tmp_path, "2", 0)
    assert status(second) == 0
    assert (tmp_path / "a").read_text() == "2" * 10_000
    files.remove_leftovers(str(tmp_path))
    assert len(hidden(tmp_path)) == 1  # of the first, which still writes
    assert status(first) == 0
    assert (tmp_path / "a").read_text() == "1" * 10_000
    assert hidden(tmp_path) == []


def test_many_writers_that_also_clean_up(tmp_path):
    code = """
for number in range(100):
    files.remove_leftovers(args[0])
    files.write_bytes(f"{args[0]}/a", args[1].encode() * 5000)
"""
    processes = [run(code, tmp_path, letter) for letter in "xyz"]
    assert [status(process) for process in processes] == [0, 0, 0]
    content = (tmp_path / "a").read_text()
    assert content in ["x" * 5000, "y" * 5000, "z" * 5000]
    assert os.listdir(tmp_path) == ["a"]


def test_leftovers_without_locks_stay_for_a_week(tmp_path, monkeypatch):
    folder = f"file://{tmp_path}"  # no locks
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: 1_000_000.0)
        os.mkdir(files.temporary_path(str(tmp_path)))
        patch.setattr(time, "time", lambda: 1_000_000.0 + 6 * 24 * 3600)
        files.remove_leftovers(folder)
        assert len(hidden(tmp_path)) == 1
        patch.setattr(time, "time", lambda: 1_000_000.0 + 8 * 24 * 3600)
        files.remove_leftovers(folder)
    assert hidden(tmp_path) == []


@pytest.mark.parametrize(
    "content, expected",
    [
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": "\\ud800"}', "half a surrogate pair"),
        (b"\xff", "not JSON"),
        (b'{"a": 1', "not JSON"),
        (b"null", "expected a JSON object, got a JSON null"),
    ],
    ids=["deep", "surrogate", "encoding", "cut", "null"],
)
def test_unusable_json_is_one_line(tmp_path, content, expected):
    path = tmp_path / "values.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"^{path}: .*{expected}"):
        files.read_json(str(path))


def test_json_may_have_a_byte_order_mark_and_pairs_of_surrogates(tmp_path):
    assert files.parse_json(b'\xef\xbb\xbf{"a": "\\ud83d\\ude00"}', "x") == {"a": "\U0001f600"}
    assert files.parse_json("[1, NaN]", "x", list)[0] == 1


def test_a_pipe_or_a_device_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("pipe", "link"):
        with pytest.raises(UserError, match="expected a regular file"):
            files.read_bytes(str(tmp_path / name))
