"""Makes a corpus from the documentation in the installed Python packages.

    albert-tf data sample_corpus --output_file=corpus.txt

Every machine has this text, and no network is needed. Modules are read, never imported. The documentation of a module
and its functions is one document; the documentation of a class and its methods is another. Code, tables, formulas,
markup and repetitions are dropped. What remains is English prose about programming: its topics are narrow, but it is
real text, and it is equal on machines with the same packages.
"""

import ast
import contextlib
import dataclasses
import hashlib
import inspect
import operator
import os
import pathlib
import re
import sysconfig
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from albert_tf.core import flags
from albert_tf.core.errors import UserError
from albert_tf.core.settings import setting
from albert_tf.core.workers import Workers, in_chunks
from albert_tf.data_prep import corpus
from albert_tf.data_prep.split_sentences import split_paragraph

LABEL = "sample_corpus"
CHUNK_BYTES = 2_000_000  # source code sent to a worker at once


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampleSettings(corpus.CorpusSettings):
    """Which packages are read, and which parts of their documentation are kept."""

    input_file: str = setting(
        "",
        "Python files or folders of them, separated by commas; empty takes the standard library and the"
        " installed packages.",
        input_path=True,
    )
    min_sentences: int = setting(4, "Documents with fewer sentences are dropped.", minimum=1)
    min_words: int = setting(4, "Sentences with fewer words are dropped.", minimum=1)
    min_letter_fraction: float = setting(
        0.8, "Sentences with a smaller share of letters are dropped.", minimum=0, maximum=1
    )
    max_names: int = setting(
        1, "Sentences with more names as in code (a_b, a.b) are dropped.", minimum=0
    )
    max_megabytes: float = setting(
        0.0, "Stop after this amount of text, in 10^6 bytes; 0 takes all.", minimum=0
    )


def main(settings: SampleSettings) -> None:
    """Collects the documentation and writes it as a corpus.

    Raises:
      UserError: a file cannot be written, or no document is left.
    """
    start = time.monotonic()
    modules = modules_of(settings)
    with corpus.corpus_writer(settings) as writer:
        for name, sentences in documents(modules, settings, LABEL, lambda: _fill(writer, settings)):
            if _fill(writer, settings) >= 1:
                break
            writer.write(name, sentences)
    summary = f"{len(modules):,} modules -> {writer.summary()}"
    corpus.print_note(LABEL, f"{summary}; {time.monotonic() - start:.1f} s")


def documents(
    modules: list["Module"],
    settings: SampleSettings,
    label: str,
    fill: Callable[[], float] = lambda: 0.0,
) -> Iterator[tuple[str, list[str]]]:
    """The documentation in the modules, without repeated sentences.

    Args:
      modules: the source files.
      settings: which text is kept.
      label: the program's name, for the line that shows progress.
      fill: returns the share, from 0 to 1, of the text wanted by the caller that it already has.

    Yields:
      Name of a module ("numpy/linalg/linalg.py") and the sentences of a document in it.
    """
    seen: set[bytes] = set()
    num_bytes_done, total = 0, sum(map(_num_bytes, modules))
    with (
        corpus.show_progress(label, total, "bytes") as progress,
        Workers(settings.num_workers, settings) as workers,
    ):
        chunks = in_chunks(modules, _num_bytes, CHUNK_BYTES)
        for documents_of_chunk, num_bytes in workers.map(_read_chunk, chunks):
            num_bytes_done += num_bytes
            for name, sentences in documents_of_chunk:
                sentences = drop_seen(sentences, seen)
                if len(sentences) >= settings.min_sentences:
                    yield name, sentences
            share = max(fill(), num_bytes_done / max(total, 1))
            progress.update(num_bytes_done, total=round(num_bytes_done / share) if share else total)


def _fill(writer: corpus.CorpusWriter, settings: SampleSettings) -> float:
    """The share of --max_megabytes that is written, from 0 to 1; always 0 if there is no limit."""
    num_bytes = writer.training.bytes + writer.held_out.bytes
    wanted = settings.max_megabytes * 1e6
    return min(1.0, num_bytes / wanted) if wanted else 0.0


def drop_seen(sentences: Iterable[str], seen: set[bytes]) -> list[str]:
    """The sentences that did not occur before; adds their hashes to `seen`. Packages repeat each other's text."""
    new = []
    for sentence in sentences:
        digest = hashlib.blake2b(sentence.lower().encode(), digest_size=8).digest()
        if digest not in seen:
            seen.add(digest)
            new.append(sentence)
    return new


# Choice of files.

# Tests have no documentation, vendored copies repeat it, and the other folders are generated or contain no prose.
_SKIPPED_FOLDER = re.compile(
    r"\..*|_?tests|test|testing|idle_test|lib2to3|__pycache__|site-packages|dist-packages|_vendor|vendored"
    r"|_distutils|_?api|locales?|pydoc_data|node_modules"
)
_SKIPPED_FILE = re.compile(r"^(test_.*|.*_test|conftest|gen_.*_ops|.*_pb2.*|_version)\.py$")
_GENERATED = re.compile(rb"(?i)auto-?generated|machine generated|do not (edit|modify)|generated by")
# Files without a long text in triple quotes are not parsed.
_WORTH_PARSING = re.compile(rb"(\"\"\"|''')[^\"']{120,}")


class Module(NamedTuple):
    """A source file, its name below its root, and its size."""

    path: str
    name: str
    num_bytes: int


def default_roots() -> list[str]:
    """The folders of the standard library and of the installed packages."""
    roots = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
    return list(dict.fromkeys(map(os.path.realpath, roots)))


def modules_of(settings: SampleSettings) -> list[Module]:
    """The modules that --input_file names."""
    return find_modules(settings.input_file.split(",") if settings.input_file else default_roots())


def find_modules(roots: Iterable[str]) -> list[Module]:
    """The Python files below some folders, sorted by their names, without tests and generated code.

    Raises:
      UserError: there is none.
    """
    modules = []
    for root in roots:
        if os.path.isfile(root):
            modules.append(Module(root, os.path.basename(root), os.path.getsize(root)))
        for folder, subfolders, names in os.walk(root):
            subfolders[:] = [name for name in subfolders if not _SKIPPED_FOLDER.fullmatch(name)]
            for name in names:
                path = os.path.join(folder, name)
                if name.endswith(".py") and not _SKIPPED_FILE.match(name) and os.path.isfile(path):
                    relative = os.path.relpath(path, root).replace(os.sep, "/")
                    modules.append(Module(path, relative, os.path.getsize(path)))
    if not modules:
        raise UserError(f"--input_file={','.join(roots)}: no Python file there")
    # Sorted by the name below the root, so that the order does not depend on where Python is installed.
    return sorted(modules, key=lambda module: (module.name, module.path))


_num_bytes = operator.attrgetter("num_bytes")


# From source code to docstrings.


def _read_chunk(
    settings: SampleSettings, modules: list[Module]
) -> tuple[list[tuple[str, list[str]]], int]:
    """A worker's task: names and sentences of the documents in some modules, and the modules' size."""
    documents = []
    for module in modules:
        source = b""
        with contextlib.suppress(OSError):  # one unreadable file among thousands does not matter
            source = pathlib.Path(module.path).read_bytes()
        for docstrings in module_docstrings(source):
            sentences = [
                sentence
                for docstring in docstrings
                for paragraph in prose_paragraphs(docstring)
                for sentence in split_paragraph(paragraph)
                if is_prose(sentence, settings)
            ]
            if len(sentences) >= settings.min_sentences:
                documents.append((module.name, sentences))
    return documents, sum(map(_num_bytes, modules))


def module_docstrings(source: bytes) -> list[list[str]]:
    """The documentation in a source file: a list of docstrings for each document.

    Returns:
      First the docstrings of the module and its functions, then a list for each class. Nothing for generated code and
      for code that this Python cannot parse.
    """
    if not _WORTH_PARSING.search(source) or _GENERATED.search(source[:1000]):
        return []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in the packages' code
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and _is_public(node)]
    return list(filter(None, map(_docstrings, (tree, *classes))))


def _docstrings(node: ast.Module | ast.ClassDef) -> list[str]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    functions = [child for child in node.body if isinstance(child, kinds) and _is_public(child)]
    docstrings = (ast.get_docstring(owner, clean=False) for owner in (node, *functions))
    return list(filter(None, docstrings))


def _is_public(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return not node.name.startswith("_") or node.name == "__init__"


# From docstrings to paragraphs.

_HEADING_LINE = re.compile(r"\s*([=\-~^\"'#*+.`])\1{2,}\s*$")  # below a heading, or around code
# Doctests, IPython, tables and directives; all of them end at the next blank line or change of indentation.
_NO_PROSE = re.compile(r"\s*(?:>>>|In \[\d+\]:|[|+]|={2,} |-{2,} |\.\. ?[\w|\[])")
# "- item", "1. item", ":param x: item", "name (type): item", and lines that end with a colon.
_ITEM = re.compile(
    r"\s*(?:[-*+•] +|\(?\d{1,2}[.)] +|[:@](?:param|arg|r?type|returns?|raises?|keyword)\b[^:]*:? *"
    r"|[*`'\"]*[A-Za-z_][\w.]*[`'\"]*(?: \([^()]*\))?: +(?=\S)|[\w ]{1,30}:$)"
)


def prose_paragraphs(docstring: str) -> list[str]:
    """The paragraphs of a docstring, with wrapped lines joined, without code, tables, headings and markup.

    A paragraph is lines of the same indentation; the first line of an item may be indented less than its others.

    Example:
      Adds two
      numbers.

      Args:                      -> ["Adds two numbers.", "The first of them."]
        x: The first of
          them.

      >>> add(1, 2)
    """
    paragraphs: list[list[str]] = [[]]
    indent, is_item, code_indent = 0, False, -1
    for line in inspect.cleandoc(docstring).splitlines():
        before, indent = indent, len(line) - len(line.lstrip())
        if line.strip() and indent <= code_indent:
            code_indent = -1
        if _HEADING_LINE.match(line):
            paragraphs[-1] = []  # the heading
        elif line.strip() and code_indent < 0:
            item = _ITEM.match(line)
            if item or (indent != before and not (is_item and indent > before)):
                paragraphs.append([])
            is_item = bool(item) or (is_item and indent >= before)
            paragraphs[-1].append(line[item.end() :] if item else line.rstrip())
        if line.rstrip().endswith("::"):
            code_indent = indent  # a literal block or a directive; deeper lines belong to it
        if not line.strip():
            paragraphs.append([])
            is_item = False
    texts = [" ".join(lines) for lines in paragraphs if lines and not _NO_PROSE.match(lines[0])]
    return [text for text in map(strip_markup, texts) if text]


_MARKUP = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (r":[a-z:+-]+:`[^`<]*?([^`<]+?)\s*<[^`>]*>`", r"\1"),  # :ref:`text <target>`
        (r":[a-z:+-]+:`!?~(?:[^`]*\.)?([^`.]+)`", r"\1"),  # :class:`~module.Name`
        (r":[a-z:+-]+:`!?([^`]+)`", r"\1"),  # :class:`Name`
        (r"`([^`<]+?)\s*<[^`>]*>`__?", r"\1"),  # `text <https://...>`_
        (r"\[([^\]]+)\]\([^)\s]*\)", r"\1"),  # [text](https://...)
        (r"\s*\[[\d#*\w]{1,12}\]_", ""),  # a footnote's mark
        (r"``([^`]+)``", r"\1"),
        (r"`([^`]+)`__?(?!\w)", r"\1"),
        (r"`[~.]*([^`]+)`", r"\1"),
        (r"\*\*(\S(?:[^*]*\S)?)\*\*", r"\1"),
        (r"(?<![\w*])\*(\S(?:[^*]*\S)?)\*(?![\w*])", r"\1"),
        (r"</?[a-zA-Z][^<>]*>", ""),
        (r"\b(\w+)_(?=[\s.,;:)])", r"\1"),  # target_
    ]
]


def strip_markup(text: str) -> str:
    """Text without the markup of reStructuredText, Markdown and HTML.

    Example:
      "See :class:`~ast.Node`, ``x`` and **[this](http://a.b)**." -> "See Node, x and this."
    """
    if any(mark in text for mark in "`*_[<"):
        for pattern, replacement in _MARKUP:
            text = pattern.sub(replacement, text)
    return " ".join(text.split())


# Choice of sentences.

_OPENERS = "\"'“("
_ENDS_AS_PROSE = re.compile(r"(?<![.\s])[.!?][\"'”)]?$")
# A condition without its consequence, as in lists of exceptions, and sentences that lost a reference.
_FRAGMENT = re.compile(r"(?:If|When) (?!.*(?:,|\bthen\b))|See for ")
_ENDS_IN_THE_MIDDLE = re.compile(r" (?:a|and|at|by|for|from|in|of|or|see|than|the|to|with)\.$")
_CODE = re.compile(
    r"[=<>{}|\\^~@#$*\[\]`+\ufffd]|://|::|\.\.|--|%%|\w\(|\(\)|/\w*/| : |,\.|\b_|_\b|^\w+: "
)
_NAME = re.compile(r"\w+(?:_\w+)+|\w+(?:\.[A-Za-z]\w+)+")


def is_prose(sentence: str, settings: SampleSettings) -> bool:
    """Whether a sentence looks like English text: it has a capital, words and a full stop, and no code.

    Example:
      "Returns the sum of its arguments." -> True;  "Returns x[0] + y." -> False

    Args:
      sentence: a sentence without markup.
      settings: the limits for words, letters and names.
    """
    if not (sentence.lstrip(_OPENERS)[:1].isupper() and _ENDS_AS_PROSE.search(sentence)):
        return False
    if _FRAGMENT.match(sentence) or _CODE.search(sentence) or _ENDS_IN_THE_MIDDLE.search(sentence):
        return False
    words = sentence.split()
    is_balanced = sentence.count("(") == sentence.count(")") and sentence.count('"') % 2 == 0
    if len(words) < settings.min_words or not is_balanced:
        return False
    if len(_NAME.findall(sentence)) > settings.max_names:
        return False
    num_letters = sum(map(str.isalpha, sentence))
    return num_letters >= settings.min_letter_fraction * sum(map(len, words))


def run() -> None:
    """Runs the program with the flags of the command line; ends the process."""
    flags.run(main, SampleSettings, description=__doc__)


if __name__ == "__main__":
    run()
