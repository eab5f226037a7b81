"""SHA256SUMS finds every change of the files that it lists."""

import subprocess

import pytest

from albert_tf.core import checksums, files
from albert_tf.core.errors import UserError


@pytest.fixture
def folder(tmp_path):
    contents = {"a.bin": bytes(range(256)), "b.json": b"{}"}
    files.write_files(str(tmp_path), checksums.with_sums(contents))
    return tmp_path


def test_unchanged_files_pass_here_and_with_sha256sum(folder):
    checksums.verify(str(folder))
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, check=True)
    of_contents = (folder / "SHA256SUMS").read_bytes()
    checksums.write_sums(str(folder), ["a.bin", "b.json"])
    assert (folder / "SHA256SUMS").read_bytes() == of_contents


def test_a_changed_or_missing_file_is_named(folder):
    for damage in (b"", bytes(255), bytes(256)):
        (folder / "a.bin").write_bytes(damage)
        with pytest.raises(UserError, match="a.bin: is not the file that was written"):
            checksums.verify(str(folder))
    (folder / "a.bin").unlink()
    with pytest.raises(UserError, match="a.bin: cannot be read"):
        checksums.verify(str(folder))


def test_a_list_without_a_file_of_a_model_is_rejected(tmp_path):
    contents = {name: name.encode() for name in ("config.json", "model.safetensors")}
    files.write_files(str(tmp_path), checksums.with_sums(contents))
    (tmp_path / "notes.txt").write_text("of the user")
    checksums.verify(str(tmp_path))
    for name in contents:
        checksums.write_sums(str(tmp_path), contents.keys() - {name})
        with pytest.raises(UserError, match=f"SHA256SUMS: does not list .*{name}; copy the folder"):
            checksums.verify(str(tmp_path))


@pytest.mark.parametrize("line", ["x", "0" * 64, "0" * 64 + "  ..", "\xff" * 64])
def test_a_damaged_list_is_rejected(folder, line):
    (folder / "SHA256SUMS").write_text(line)
    with pytest.raises(UserError, match="SHA256SUMS: damaged"):
        checksums.verify(str(folder))


def test_a_folder_without_the_list_passes(tmp_path):
    checksums.verify(str(tmp_path))


def test_a_folder_inside_with_its_own_list_is_of_another_model(folder):
    inner = folder / "inner"
    contents = checksums.with_sums({"model.safetensors": b"c"})
    files.write_files(str(inner), contents)
    checksums.verify(str(folder))
    checksums.verify(str(inner))
    checksums.check_no_others(str(folder), [path.name for path in folder.iterdir()])
    (inner / "SHA256SUMS").unlink()
    with pytest.raises(UserError, match=r"does not list .*inner/model.safetensors"):
        checksums.verify(str(folder))
    with pytest.raises(UserError, match=r"inner/model.safetensors: is of another model; remove it"):
        checksums.check_no_others(str(folder), [path.name for path in folder.iterdir()])
    checksums.check_no_others(str(folder / "none"), [])
