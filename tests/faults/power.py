"""What a disk may hold after a power failure: changes that were not synchronized are lost, cut, or in another order.

As the tests of SQLite and of ALICE (Pillai et al., OSDI 2014) do, `Disk` follows the changes of a program. Certain are
only the content of a file at its last fsync, and the names in a folder at the folder's last fsync. Each other change of
a name is there or not, independently of all others, except that a rename is atomic, and that a removed folder was
empty. Of other content of a file, all, a half, zeros of the same length, or nothing is there.
"""

import dataclasses
import pathlib
import random
import re
from collections.abc import Iterator

from tests.faults.harness import hash_of, visible
from tests.faults.system_calls import Change

_MOST_SINGLE = 8  # changes that are lost alone, or kept alone, at each moment


@dataclasses.dataclass(eq=False)
class File:
    """A file: what is certain of its content, and what a reader sees; None for a folder."""

    content: bytes | None
    certain: bytes = b""
    is_changed: bool = False  # since `content` was read


@dataclasses.dataclass(eq=False)
class Step:
    """A change of names: entries of folders that it sets, and those that it removes if they are that file."""

    added: dict[tuple[File, str], File]
    removed: dict[tuple[File, str], File]
    is_certain: bool = False

    @property
    def folders(self) -> set[File]:
        return {folder for folder, _ in (*self.added, *self.removed)}


class Disk:
    """Follows the changes of a program in a folder; give `before_change` to `run_program`.

    Attributes:
      states: descriptions and contents of states after a power failure (paths to bytes; None for a folder), by hash.
    """

    def __init__(self, folder: pathlib.Path, ignored: str):
        self._path, self._ignored, self._random = folder, ignored, random.Random(7)
        self._root = File(None)
        self._old: dict[tuple[File, str], File] = {}  # entries before the first change
        self._steps: list[Step] = []
        self._entries: dict[tuple[File, str], File] = {}
        self.states: dict[str, tuple[str, dict[str, bytes | None]]] = {}
        for path in sorted(folder.rglob("*")):
            content = None if path.is_dir() else path.read_bytes()
            parent, name = self._place(str(path))
            self._old[parent, name] = File(content, content or b"")
            self._entries = dict(self._old)

    def before_change(self, change: Change) -> None:
        """Adds the states of a power failure at this moment, then notes the change."""
        self._read_changed()
        if not self._ignored or not re.search(self._ignored, change.path):
            self._add_states(change)
        self._apply(change)

    def left(self) -> dict[str, bytes | None]:
        """The files that are certain now."""
        self._read_changed()
        return self._tree([step for step in self._steps if step.is_certain], "nothing")

    def seen(self) -> dict[str, bytes | None]:
        """The files that a reader sees now."""
        self._read_changed()
        return self._tree(self._steps, "all")

    def _place(self, path: str) -> tuple[File, str]:
        """The folder and the name of a path."""
        folder = self._root
        *above, name = pathlib.Path(path).relative_to(self._path).parts or ("",)
        for part in above:
            folder = self._entries[folder, part]
        return folder, name

    def _read_changed(self) -> None:
        for path, file in _paths(self._root, self._entries):
            if file.is_changed and (self._path / path).exists():
                file.content = (self._path / path).read_bytes()

    def _apply(self, change: Change) -> None:
        try:
            place = self._place(change.path)
            old_place = self._place(change.old_path) if change.old_path else None
        except KeyError:  # the call will fail: there is no such folder
            return
        file = self._root if change.path == str(self._path) else self._entries.get(place)
        if file is None or file.content is None or change.operation in ("rename", "remove", "link"):
            self._change_names(change, file, place, old_place)
        elif change.operation == "sync":
            file.certain, file.is_changed = file.content, False
        else:
            file.is_changed = True

    def _change_names(self, change: Change, file: File | None, place, old_place) -> None:
        """Adds a step to the changes of names, or makes those of a folder certain."""
        step = Step({}, {})
        if change.operation == "sync":
            for earlier in self._steps:
                earlier.is_certain |= file in earlier.folders
        elif change.operation in ("open", "mkdir") and file is None:
            step.added[place] = File(None if change.operation == "mkdir" else b"")
        elif change.operation == "remove" and not any(
            folder is file for folder, _ in self._entries
        ):
            step.removed = {place: file} if file else {}
        elif old_place in self._entries:
            step.added[place] = self._entries[old_place]
            step.removed = (
                {old_place: self._entries[old_place]} if change.operation == "rename" else {}
            )
        if step.folders:
            self._steps.append(step)
            _do(step, self._entries)

    def _add_states(self, change: Change) -> None:
        certain = [step for step in self._steps if step.is_certain]
        others = [step for step in self._steps if not step.is_certain]
        chosen = self._random.sample(others, min(_MOST_SINGLE, len(others)))
        kept = [(f"all changes of names, {data}", others, data) for data in _DATA]
        kept += [("no change of a name", [], "nothing")]
        for step in chosen:
            kept += [
                (f"all names but {_name(step)}", [one for one in others if one is not step], "all")
            ]
            kept += [(f"only the name {_name(step)}", [step], "all")]
        some = [step for step in others if self._random.random() < 0.5]
        kept += [("some changes of names", some, "mixed")]
        for what, steps, data in kept:
            tree = self._tree([*certain, *steps], data)
            at = f"before {change.name} of {change.path}: {what}"
            self.states.setdefault(hash_of(visible(tree)), (at, tree))

    def _tree(self, steps: list[Step], data: str) -> dict[str, bytes | None]:
        """The files by path after some of the changes, and those without which these cannot be."""
        alive, emptied = set(steps), set()
        for step in reversed(self._steps):
            if step in alive or not emptied.isdisjoint(step.folders):
                alive.add(step)
                emptied.update(() if step.added else step.removed.values())
        entries = dict(self._old)
        for step in self._steps:
            if step in alive:
                _do(step, entries)
        return {
            path: None if file.content is None else self._content(file, data)
            for path, file in _paths(self._root, entries)
        }

    def _content(self, file: File, data: str) -> bytes:
        if file.content == file.certain:
            return file.certain
        if data == "mixed":
            data = self._random.choice(_DATA)
        length, common = len(file.content), len(file.certain)
        is_appended = file.content.startswith(file.certain)
        return {
            "all": file.content,
            "nothing": file.certain,
            "half": file.content[: (common + length) // 2 if is_appended else length // 2],
            "zeros": (file.certain if is_appended else b"").ljust(length, b"\0"),
        }[data]


_DATA = ("all", "nothing", "half", "zeros")


def _name(step: Step) -> str:
    return ", ".join(name for _, name in (*step.removed, *step.added))


def _do(step: Step, entries: dict[tuple[File, str], File]) -> None:
    """Makes a change of names, unless it would replace a folder with files."""
    filled = {folder for folder, _ in entries}
    if any(entries.get(place) in filled for place in step.added):
        return
    for place, file in step.removed.items():
        if entries.get(place) is file:
            del entries[place]
    entries.update(step.added)


def _paths(folder: File, entries: dict[tuple[File, str], File]) -> Iterator[tuple[str, File]]:
    """The paths of all files below a folder."""
    names: dict[File, dict[str, File]] = {}
    for (parent, name), file in entries.items():
        names.setdefault(parent, {})[name] = file
    pending = [("", folder)]
    while pending:
        path, parent = pending.pop()
        for name, file in names.get(parent, {}).items():
            yield f"{path}{name}", file
            pending.append((f"{path}{name}/", file))


def write_tree(tree: dict[str, bytes | None], folder: pathlib.Path) -> None:
    """Makes the files of a state."""
    for path, content in sorted(tree.items()):
        if content is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(content)
