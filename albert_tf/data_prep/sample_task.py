"""Makes a text classification task from packages' documentation.

    albert-tf data sample_task --output_dir=packages

The program writes train.tsv and dev.tsv with the columns `text` and `package`; the label `package` is the package that
a text documents. The passages come from the documentation that `sample_corpus` reads. A passage that names its package
is left out. All passages of a module are in the same file.
"""

import collections
import dataclasses
import hashlib
import itertools
import os
from typing import NamedTuple

from albert_tf.core import files, flags
from albert_tf.core.errors import UserError
from albert_tf.core.locks import locks_output_dir
from albert_tf.core.settings import Settings, setting
from albert_tf.core.workers import num_workers_setting
from albert_tf.data_prep import corpus, sample_corpus

PROGRAM = "sample_task"
_HELD_OUT = 1 / 6  # share of the modules


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampleTaskSettings(Settings):
    """Which packages are labels, and how many passages are taken."""

    output_dir: str = setting("", "Folder for train.tsv and dev.tsv.", required=True)
    input_file: str = setting(
        "",
        "Folders of packages, separated by commas; empty takes the standard library and the installed packages.",
        input_path=True,
    )
    num_packages: int = setting(
        6, "Number of packages: those with the most passages are taken.", minimum=2
    )
    max_passages: int = setting(500, "Maximum number of passages of a package.", minimum=10)
    num_sentences: int = setting(2, "Number of sentences in a passage.", minimum=1)
    num_workers: int | None = num_workers_setting()


@locks_output_dir  # also finds out early whether the folder can be written
def main(settings: SampleTaskSettings) -> None:
    """Collects the passages and writes both files."""
    passages = _passages_by_package(settings)
    packages = sorted(passages, key=lambda package: (-len(passages[package]), package))
    packages = sorted(packages[: settings.num_packages])
    if len(packages) < settings.num_packages:
        expected = f"--num_packages={settings.num_packages}: only {len(packages)}"
        raise UserError(f"{expected} packages have documentation; lower it")
    chosen = [sorted(passages[package], key=_hash)[: settings.max_passages] for package in packages]
    rows = sorted(itertools.chain(*chosen), key=_hash)
    lines: dict[str, list[str]] = {"train.tsv": [], "dev.tsv": []}
    for row in rows:
        is_held_out = int.from_bytes(_hash(row.module)) < _HELD_OUT * 2**64
        lines["dev.tsv" if is_held_out else "train.tsv"].append(f"{row.text}\t{row.package}\n")
    for name, passages_of_file in lines.items():
        path = os.path.join(settings.output_dir, name)
        corpus.print_note(PROGRAM, f"{path}: {len(passages_of_file):,} passages")
    contents = {name: "".join(["text\tpackage\n", *lines[name]]).encode() for name in lines}
    files.write_files(settings.output_dir, contents)
    corpus.print_note(PROGRAM, f"packages: {', '.join(packages)}")


class Passage(NamedTuple):
    """A text, its label and its source."""

    text: str
    package: str
    module: str


def _passages_by_package(settings: SampleTaskSettings) -> dict[str, list[Passage]]:
    """All passages of all packages."""
    passages = collections.defaultdict(list)
    modules = sample_corpus.find_modules(settings.input_file)
    for module, sentences in sample_corpus.documents(modules, settings.num_workers, PROGRAM):
        package, separator, _ = module.partition("/")
        for start in range(0, len(sentences), settings.num_sentences):
            group = sentences[start : start + settings.num_sentences]
            text = " ".join(" ".join(group).split())
            if separator and package.lower() not in text.lower():
                passages[package].append(Passage(text, package, module))
    return passages


def _hash(value: object) -> bytes:
    """A hash that puts values into an order that looks random and is the same on every machine."""
    return hashlib.blake2b(repr(value).encode(), digest_size=8).digest()


def run() -> None:
    """Runs the program with the flags of the command line; ends the process."""
    flags.run(main, SampleTaskSettings, description=__doc__)


if __name__ == "__main__":
    run()
