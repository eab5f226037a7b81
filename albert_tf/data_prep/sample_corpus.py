"""Makes a corpus and a task from the documentation of packages.

    albert-tf data sample_corpus --output_file=corpus.txt --task_dir=packages

Every machine has this text, that of the installed Python packages, and no network is needed. Modules are read, never
imported. The documentation of a module is one document; code, tables, lists and repeated sentences are dropped. In the
task, a passage of two sentences has the name of the package that it documents as its label.
"""

import ast
import collections
import dataclasses
import itertools
import os
import pathlib
import re
import sysconfig
import warnings
import zlib
from collections.abc import Mapping, Sequence

from albert_tf.core import files, flags
from albert_tf.core.errors import UserError
from albert_tf.core.program import Program
from albert_tf.core.settings import setting
from albert_tf.core.workers import Workers
from albert_tf.data_prep import corpus
from albert_tf.data_prep.sentences import split_paragraph

PROGRAM = "sample_corpus"
MIN_SENTENCES = 4  # shorter documents are dropped
NUM_PACKAGES = 6  # the labels of the task
MAX_PASSAGES = 500  # of each package

# Tests and generated code have no documentation, and vendored copies repeat it.
_SKIPPED = re.compile(r"\..*|.*test.*|__pycache__|(site|dist)-packages|_?vendor.*|.*_(pb2|ops)\.py")
# Files without a long text in triple quotes are not parsed.
_WORTH_PARSING = re.compile(rb"(\"\"\"|''')[^\"']{120,}")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)
_MARKUP = re.compile(r":\w+:(?=`)|[`*]+")
# Several words with a capital and a full stop, and no code.
_PROSE = re.compile(r"[A-Z\"][^=<>{}|\\^~@#$[\]+/_]*\s[^=<>{}|\\^~@#$[\]+/_]*\s\S+[.!?]\"?")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampleSettings(corpus.CorpusSettings):
    """Which packages are read, and where the task is written."""

    input_file: str = setting(
        "",
        "Folders of packages, separated by commas; empty takes the standard library and the installed packages.",
        input_path=True,
    )
    task_dir: str = setting("", "Folder for train.tsv and dev.tsv, with the columns text, package.")
    max_megabytes: float = setting(
        0.0, "Stop after this amount of text, in 10^6 bytes; 0 takes all.", minimum=0
    )


def main(settings: SampleSettings) -> str:
    """Collects the documentation, writes it as a corpus and a task, and returns the path of the corpus."""
    installed = map(sysconfig.get_path, ("stdlib", "purelib", "platlib"))
    folders = files.listed(settings.input_file) if settings.input_file else []
    roots = folders or map(os.path.realpath, installed)
    modules = sorted(itertools.chain.from_iterable(map(find_modules, dict.fromkeys(roots))))
    if not modules:
        raise UserError(f"--input_file={settings.input_file}: no Python file there")
    limit = settings.max_megabytes * 1e6 or float("inf")
    seen: set[str] = set()  # packages repeat each other's text
    documents: dict[str, list[str]] = {}
    with (
        corpus.show_progress(PROGRAM, len(modules), " modules") as progress,
        corpus.corpus_writer(settings) as writer,
        Workers(settings.num_workers, None) as workers,
    ):
        for (name, _), sentences in zip(modules, workers.map(read_module, modules), strict=False):
            progress.update()
            new = [sentence for sentence in sentences if sentence not in seen]
            if len(new) >= MIN_SENTENCES:
                seen.update(new)
                documents[name] = new
                writer.write(name, new)
            if writer.training.bytes + writer.held_out.bytes >= limit:
                break
    corpus.print_note(PROGRAM, f"{len(modules):,} modules -> {writer.summary()}")
    if settings.task_dir:
        with files.errors_named(f"--task_dir={settings.task_dir}", "written"):
            files.write_files(settings.task_dir, make_task(documents))
    return settings.output_file


def find_modules(root: str) -> list[tuple[str, str]]:
    """The names below a folder, and the paths, of Python files."""
    modules = [
        (path.relative_to(root).as_posix(), path) for path in pathlib.Path(root).rglob("*.py")
    ]
    kept = [pair for pair in modules if not any(map(_SKIPPED.fullmatch, pair[0].split("/")))]
    return [(name, str(path)) for name, path in kept if path.is_file()]


def read_module(_shared: None, module: tuple[str, str]) -> list[str]:
    """The sentences of a module's documentation, each once; none of a module that cannot be read or parsed."""
    try:
        source = pathlib.Path(module[1]).read_bytes()
        if not _WORTH_PARSING.search(source):
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in the packages' code
            tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    nodes = [node for node in ast.walk(tree) if isinstance(node, _DOCUMENTED)]
    docstrings = [ast.get_docstring(node) or "" for node in nodes]
    return list(dict.fromkeys(itertools.chain.from_iterable(map(prose_of, docstrings))))


def prose_of(docstring: str) -> list[str]:
    """The sentences of a docstring, without markup; none of code and tables.

    Example: "Returns the `sum`, as an\nint. See x[0].\n\n>>> 1" -> ["Returns the sum, as an int."]
    """
    sentences = []

    def indentation(line: str) -> int:  # of the lines of a paragraph
        return len(line) - len(line.lstrip()) if line.strip() else -1

    for _, lines in itertools.groupby(docstring.split("\n"), indentation):
        text = _MARKUP.sub("", " ".join(" ".join(lines).split()))
        if ">>>" not in text:
            sentences += [part for part in split_paragraph(text) if _PROSE.fullmatch(part)]
    return sentences


def make_task(documents: Mapping[str, Sequence[str]]) -> dict[str, bytes]:
    """The files of the task; all passages of a module are in the same file, and none names its package."""
    passages = collections.defaultdict(list)
    for module, sentences in documents.items():
        package, separator, _ = module.partition("/")
        is_top_level = not separator
        is_held_out = zlib.crc32(module.encode()) % 6 == 0
        for pair in zip(sentences[::2], sentences[1::2], strict=False):
            text = " ".join(pair)
            names_its_package = package.lower() in text.lower()
            if not is_top_level and not names_its_package:
                passages[package].append((is_held_out, text))
    largest = sorted(passages, key=lambda package: (-len(passages[package]), package))
    lines: dict[str, list[str]] = {"train.tsv": ["text\tpackage"], "dev.tsv": ["text\tpackage"]}
    for package in largest[:NUM_PACKAGES]:
        for is_held_out, text in passages[package][:MAX_PASSAGES]:
            lines["dev.tsv" if is_held_out else "train.tsv"].append(f"{text}\t{package}")
    return {name: ("\n".join(lines[name]) + "\n").encode() for name in lines}


program = Program(
    main=main,
    settings_classes=(SampleSettings,),
    description=__doc__,
)
run = flags.in_shell(program)

if __name__ == "__main__":
    run()
