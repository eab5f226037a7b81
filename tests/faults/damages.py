"""Damages: functions of a file's path, and of the path of the file of the same name of another run."""

import functools
import os
import shutil


def emptied(path, _other):
    path.write_bytes(b"")


def cut_in_half(path, _other):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def flipped(path, _other, *, place=2 / 3):
    """Changes a bit; `place` is from 0, the first byte, to 1, the last."""
    content = bytearray(path.read_bytes())
    content[int(place * (len(content) - 1))] ^= 1
    path.write_bytes(content)


def of_another_run(path, other):
    shutil.copy(other, path)


def a_folder(path, _other):
    path.unlink()
    path.mkdir()


def a_dangling_link(path, _other):
    path.unlink()
    path.symlink_to(path.parent / "nowhere")


def a_pipe(path, _other):
    path.unlink()
    os.mkfifo(path)


def missing(path, _other):
    path.unlink()


def copied_beside(path, _other):
    shutil.copy(path, path.with_name(f"copy-of-{path.name}"))


def swapped_with_its_neighbor(path, _other):
    """With the next file in its folder; nothing happens to the last."""
    files = [file for file in path.parent.iterdir() if file.is_file()]
    names = sorted(file.name for file in files if file.suffix == path.suffix)
    for name in names[names.index(path.name) + 1 :][:1]:
        content = path.read_bytes()
        path.write_bytes(path.with_name(name).read_bytes())
        path.with_name(name).write_bytes(content)


FLIPS = {
    f"flipped_at_{place}": functools.partial(flipped, place=place)
    for place in (0, 0.03, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.97, 1)
}
OTHERS = (emptied, cut_in_half, of_another_run, a_folder, a_dangling_link, a_pipe, missing)
OTHERS += (copied_beside, swapped_with_its_neighbor)
DAMAGES = {**{damage.__name__: damage for damage in OTHERS}, **FLIPS}
