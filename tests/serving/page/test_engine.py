"""The engine of the page that works alone: where it is found, and what is rejected."""

import hashlib
import io
import tarfile

import pytest

from albert_tf.serving.page import engine
from tests.helpers import error_of


@pytest.fixture
def contents(monkeypatch):
    """The files of a small package, which counts as the one that was tested."""
    contents = {"engine.mjs": b"export {}", "engine.wasm": b"\0asm"}
    names = {part: name for part, (name, _) in engine._FILES.items()}
    hashes = {part: hashlib.sha256(content).hexdigest() for part, content in contents.items()}
    files = {part: (names[part], hashes[part]) for part in contents}
    monkeypatch.setattr(engine, "_FILES", files)
    return contents


def write_folder(folder, contents):
    for part, content in contents.items():
        path = folder / engine._FILES[part][0]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def write_archive(path, contents):
    with tarfile.open(path, "w:gz") as archive:
        for part, content in contents.items():
            member = tarfile.TarInfo(f"package/{engine._FILES[part][0]}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def test_the_package_is_an_archive_or_a_folder(contents, tmp_path):
    write_archive(tmp_path / "a.tgz", contents)
    write_folder(tmp_path / "unpacked", contents)
    write_folder(tmp_path / "with_folder" / "package", contents)
    for name in ("a.tgz", "unpacked", "with_folder"):
        assert engine.engine_files(str(tmp_path / name)) == contents


@pytest.mark.parametrize("place", [f"onnxruntime-web-{engine.VERSION}.tgz", "node_modules"])
def test_the_package_is_found_where_npm_puts_it(contents, tmp_path, monkeypatch, place):
    if place == "node_modules":
        write_folder(tmp_path / place / "onnxruntime-web", contents)
    else:
        write_archive(tmp_path / place, contents)
    monkeypatch.chdir(tmp_path)
    assert engine.engine_files() == contents


def test_what_is_missing_or_another_version_is_one_line(contents, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    how = f"run `npm pack onnxruntime-web@{engine.VERSION}` here"
    assert how in error_of(engine.engine_files)
    assert "--web_engine=absent: no such file" in error_of(engine.engine_files, "absent")
    (tmp_path / "text").write_text("no archive")
    assert "has no dist/ort.wasm.bundle.min.mjs" in error_of(engine.engine_files, "text")
    write_folder(tmp_path / "other", {**contents, "engine.wasm": b"another"})
    message = error_of(engine.engine_files, "other")
    assert "other: has another dist/ort-wasm-simd-threaded.wasm" in message and how in message
