"""Files and folders are complete or absent, here and through TensorFlow's file systems."""

import os
import signal
import stat
import subprocess
import sys
import threading

import pytest

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.data_prep.corpus import expand_paths
from tests.helpers import ROOT, run_script

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
    folder = f"{scheme}{tmp_path}"
    below = ["a", "c", "b/1", "b/a/2"]
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


def test_the_target_of_a_link_is_replaced_and_the_link_stays(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "old").write_bytes(b"old")
    for name, target in {"link": "disk/old", "dangling": "disk/new", "twice": "link"}.items():
        (tmp_path / name).symlink_to(target)
        files.write_bytes(str(tmp_path / name), name.encode())
        assert (tmp_path / name).is_symlink() and (tmp_path / name).read_text() == name
    assert sorted(os.listdir(tmp_path / "disk")) == ["new", "old"]
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UserError, match="loop: cannot be written .Too many levels"):
        files.write_bytes(str(tmp_path / "loop"), b"x")


def test_files_and_folders_of_a_folder_replace_the_targets_of_links(tmp_path):
    write = {"file": b"new", "folder/inner": b"new"}
    (tmp_path / "disk" / "folder").mkdir(parents=True)
    (tmp_path / "disk" / "folder" / "old").touch()
    (tmp_path / "out").mkdir()
    for name in ("file", "folder"):
        (tmp_path / "out" / name).symlink_to(f"../disk/{name}")
    (tmp_path / "linked").symlink_to("out")
    files.write_files(str(tmp_path / "linked"), write)
    assert all((tmp_path / "out" / name).is_symlink() for name in ("file", "folder"))
    found = {path.relative_to(tmp_path / "disk") for path in (tmp_path / "disk").rglob("*")}
    assert set(map(str, found)) == {"file", "folder", "folder/inner"}


def test_a_pipe_is_written_through_and_stays(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    (tmp_path / "link").symlink_to("pipe")
    received = []
    for name in ("pipe", "link"):
        reader = threading.Thread(target=lambda: received.append(path.read_bytes()))
        reader.start()
        files.write_bytes(str(tmp_path / name), name.encode())
        reader.join()
    assert received == [b"pipe", b"link"] and path.is_fifo()
    files.remove_older(str(tmp_path / "link"))
    assert path.is_fifo() and sorted(os.listdir(tmp_path)) == ["link", "pipe"]
    with pytest.raises(UserError, match="pipe: is a pipe or device, expected a file"):
        files.write_files(str(tmp_path), {"pipe": b"x"})


def test_a_device_is_written_through_and_stays(tmp_path):
    path = tmp_path / "null"  # a node of our own: that of the machine could be lost
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        path.write_bytes(b"")
    except PermissionError:
        pytest.skip("devices cannot be made here")
    files.write_bytes(str(path), b"x")
    files.remove_older(str(path))
    assert stat.S_ISCHR(path.stat().st_mode) and os.listdir(tmp_path) == ["null"]
    with pytest.raises(UserError, match="null: expected a regular file, found a device"):
        files.read_bytes(str(path))


@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_standard_output_gets_the_bytes_at_its_place(tmp_path, kind):
    (tmp_path / "link").symlink_to("/dev/stdout")
    program = (
        "import sys; from albert_tf.core import files; print('before', flush=True)\n"
        "files.write_bytes(sys.argv[1], b'bytes')"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "link")]
    with open(tmp_path / "printed", "w+b") as printed:
        options = {"stdout": subprocess.PIPE if kind == "pipe" else printed, "check": True}
        output = subprocess.run(command, cwd=ROOT, **options).stdout
    assert (output or (tmp_path / "printed").read_bytes()) == b"before\nbytes"
    assert (tmp_path / "link").is_symlink()


def test_what_is_read_as_a_file_is_no_pipe_unless_it_may_be(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(UserError, match="config.json: expected a regular file, found a pipe"):
        files.read_json(str(tmp_path / "config.json"))
    descriptor, writer = os.pipe()
    os.write(writer, b"[1]")
    os.close(writer)
    assert files.read_json(f"/dev/fd/{descriptor}", list) == [1]  # a shell's <(command)
    os.close(descriptor)


WRITER = """
import sys
from albert_tf.core import files
with files.OutputFile(sys.argv[1]) as file:
    file.write(b"first")
    print("open", flush=True)
    sys.stdin.read()
"""


def test_a_second_writer_of_a_file_is_rejected_and_the_file_is_that_of_the_first(tmp_path):
    path = tmp_path / "a.txt"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, cwd=ROOT, **pipes) as first:
        assert first.stdout.readline() == b"open\n"
        (tmp_path / "link").symlink_to(path)
        for name in ("a.txt", "link"):
            line = f"{tmp_path / name}: is being written by another process; wait, or choose"
            with pytest.raises(UserError, match=line):
                files.write_bytes(str(tmp_path / name), b"second")
        files.write_bytes(f"{path}-2", b"another file")
        first.stdin.close()
    assert first.returncode == 0 and path.read_bytes() == b"first"
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "a.txt-2", "link"]


def test_a_long_name_has_temporary_names_that_fit(tmp_path):
    path = tmp_path / ("é" * 127)
    files.write_bytes(str(path), b"x")
    assert path.read_bytes() == b"x" and len(os.listdir(tmp_path)) == 1


def test_folders_that_were_made_for_nothing_are_removed(tmp_path):
    with pytest.raises(KeyError), files.OutputFile(f"{tmp_path}/new/folder/a"):
        raise KeyError
    assert os.listdir(tmp_path) == []


LFS_POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 90888945\n"


def test_a_pointer_of_git_lfs_is_named(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(LFS_POINTER)
    for read in (files.read_bytes, files.read_json, files.open_binary, files.check_content):
        with pytest.raises(
            UserError, match=f"^{path}: is only a pointer of Git LFS, .* git lfs pull"
        ):
            read(str(path))
