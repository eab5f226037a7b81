"""Splits plain text, WikiExtractor pages and JSON files into sentences.

    albert-tf data split_sentences --input_file='wiki/*/wiki_*' --output_file=corpus.txt

A JSON file has an object for each document: one per line, or all of them in an array.
Documents are read one after the other, split by worker processes or a Dask cluster, and written in the order of the
input, with one sentence per line and a blank line between documents. `sentences.py` splits; what is not prose is
dropped, and the summary says how much that was. Licenses of Project Gutenberg are left out.
"""

import dataclasses
import html
import itertools
import json
import re
import textwrap
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from albert_tf.core import flags
from albert_tf.core.errors import UserError, shortened
from albert_tf.core.program import Program
from albert_tf.core.settings import setting
from albert_tf.core.workers import in_chunks
from albert_tf.data_prep import corpus, json_records
from albert_tf.data_prep import sentences as prose
from albert_tf.data_prep.corpus import Piece
from albert_tf.data_prep.engines.choice import engine_of
from albert_tf.data_prep.engines.settings import DaskSettings

PROGRAM = "split_sentences"
CHUNK_CHARS = 1_000_000  # text sent to a worker at once
MAX_SENTENCE_CHARS = 4000  # longer sentences are cut between words
MAX_DOCUMENT_CHARS = 20_000_000  # longer documents are cut between lines
MAX_TITLE_WORDS = 5  # in a title of a section in WikiExtractor's pages, which ends in a full stop


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitSettings(corpus.CorpusSettings, DaskSettings):
    """What is read, how it is split, and what is dropped."""

    input_file: str = setting(
        "", "Files, globs or folders, separated by commas.", required=True, input_path=True
    )
    document_separator: str = setting(
        "file", "How documents in plain text are separated.", choices=("file", "blank_line")
    )
    line_breaks: str = setting(
        "auto",
        "Meaning of a line break in text: the paragraph continues (wrapped), or the next paragraph begins.",
        choices=("auto", "wrapped", "paragraphs"),
    )
    text_field: str = setting("text", "Name of the text in an object of JSON.")
    language: str = setting(
        "en", "ISO code of the language in small letters, such as de, for its abbreviations."
    )
    invalid_utf8: str = corpus.invalid_utf8_setting()
    drop_fragments: bool = setting(
        True,
        "Whether to drop headings, rows of tables, and sentences without final punctuation, where their script has it,"
        " with fewer letters than other characters, or that lack a template of Wikipedia, as in `It covers .`.",
    )
    min_sentences: int = setting(2, "Documents with fewer sentences are dropped.", minimum=1)

    def __post_init__(self):
        super().__post_init__()
        if not re.fullmatch("[a-z]{2,3}", self.language):
            self.refuse("language", f"must be an ISO code such as en or de, got {self.language!r}")


def main(settings: SplitSettings) -> str:
    """Splits the input's documents, writes their sentences, and returns the path of the file."""
    start = time.monotonic()
    make_engine = engine_of(settings)
    outputs = (settings.output_file, settings.eval_output_file)
    paths = corpus.expand_paths(settings.input_file, not_among=outputs)
    counts: Counter[str] = Counter()
    reader = corpus.LineReader(settings.invalid_utf8)
    documents = (doc for path in paths for doc in read_documents(path, reader, settings))
    with (
        corpus.show_progress(PROGRAM, corpus.total_bytes(paths), "B") as progress,
        corpus.corpus_writer(settings) as writer,
        make_engine(settings, settings) as engine,
    ):
        chunks = in_chunks(documents, lambda document: sum(map(len, document.lines)), CHUNK_CHARS)
        for split_documents, chunk_counts in engine.map(_split_chunk, chunks):
            counts += chunk_counts
            progress.update(reader.num_bytes - progress.n)
            for key, sentences in split_documents:
                writer.write(key, sentences)
        if counts["short documents"] == counts["documents"] > 0:
            raise UserError(f"no document is left: {dropped_line(counts, settings)}")
    reader.print_report(PROGRAM)
    corpus.print_note(PROGRAM, dropped_line(counts, settings))
    cut = f"; {counts['cut']:,} long sentences cut" if counts["cut"] else ""
    seconds = f"{time.monotonic() - start:.1f} s"
    corpus.print_note(PROGRAM, f"{len(paths):,} files -> {writer.summary()}{cut}; {seconds}")
    return settings.output_file


def dropped_line(counts: Counter, settings: SplitSettings) -> str:
    """How much was dropped; a warning above a tenth."""
    kinds = ("sentences", "fragments", "documents", "short documents")
    sentences, fragments, documents, short = (counts[kind] for kind in kinds)
    kept = counts["kept characters"] / max(1, counts["characters"])
    is_much = 10 * fragments > sentences or 10 * short > documents or kept < 0.9
    warning = "WARNING: " if is_much else ""
    return (
        f"{warning}of {sentences:,} sentences, {fragments:,} were dropped as fragments (--drop_fragments); of"
        f" {documents:,} documents, {short:,} with fewer than {settings.min_sentences} sentences (--min_sentences);"
        f" {kept:.1%} of the text is kept"
    )


# Reading: files -> documents.

END_OF_DOCUMENT = None  # between the lines of two documents


class Document(NamedTuple):
    """A document as it was read."""

    key: str  # its first lines, which decide whether it is held out; equal for all parts of a cut document
    lines: list[str]
    is_page: bool = False  # of WikiExtractor: every line is a paragraph or a heading

    def paragraphs(self, line_breaks: str) -> list[str]:
        """Its paragraphs, and headings."""
        if self.is_page:
            return page_paragraphs(self.lines)
        return text_paragraphs(self.lines, line_breaks=line_breaks)


def read_documents(
    path: str, reader: corpus.LineReader, settings: SplitSettings
) -> Iterator[Document]:
    """The documents of a file, without blank ones; cuts documents that are too long."""
    pieces: Iterator[Piece] = reader.read_pieces(path)
    pieces = itertools.dropwhile(lambda piece: not piece.text.strip(), pieces)
    head = list(itertools.islice(pieces, _HEAD_PIECES))
    pieces = itertools.chain(head, pieces)
    file_format = detect_format(head, path)
    if file_format == "wikiextractor":
        yield from _close_documents(_read_pages(pieces, path), is_page=True)
    elif file_format == "jsonl":
        yield from _read_records(json_records.of_lines(pieces, path), settings.text_field)
    elif file_format == "json array":
        yield from _read_records(json_records.of_array(pieces, path), settings.text_field)
    else:
        has_blank_ends = settings.document_separator == "blank_line"
        yield from _close_documents(_read_text(pieces, has_blank_ends), is_page=False)


_HEAD_PIECES = 3  # "[", "{" and '"text": ...' can be in three lines
_OBJECT_START = re.compile(r'\s*\{\s*"(?:[^"\\]|\\.)*"\s*:')
_ARRAY_START = re.compile(r'\s*\[\s*\{\s*["}]')
_ARRAY_OF_TEXTS_START = re.compile(r'\s*\[\s*"(?:[^"\\]|\\.)*"\s*[],]')
_EXPECTED_JSON = "expected an object in each line, or an array of objects"


def detect_format(head: Sequence[Piece], path: str) -> str:
    """The format of a file, decided by its first lines: "text", "wikiextractor", "jsonl" or "json array"."""
    if not head:
        return "text"
    first = head[0]
    text = "\n".join(piece.text for piece in head)
    if first.text.startswith("<doc "):
        return "wikiextractor"
    if _ARRAY_START.match(text):
        return "json array"
    if _ARRAY_OF_TEXTS_START.match(text):
        raise UserError(f"{path}: is a JSON array of texts, {_EXPECTED_JSON}")
    if not first.text.lstrip().startswith("{"):
        return "text"
    if not first.ends_line and _OBJECT_START.match(first.text):
        return "jsonl"
    try:
        json.loads(first.text)
        return "jsonl"
    except (ValueError, RecursionError) as error:
        if _OBJECT_START.match(text):  # otherwise it may be any text, such as {{a template}}
            place = f"{path}:{first.number}"
            raise UserError(f"{place}: not JSON ({error}); {_EXPECTED_JSON}") from None
        return "text"


def _read_text(pieces: Iterable[Piece], has_blank_ends: bool) -> Iterator[str | None]:
    for piece in pieces:
        is_end = has_blank_ends and not piece.text.strip()
        yield END_OF_DOCUMENT if is_end else piece.text


_PAGE_START = re.compile(r'<doc [^>]*?(?:title="(?P<title>.*)")?>\s*$')


def _read_pages(pieces: Iterable[Piece], path: str) -> Iterator[str | None]:
    title: str | None = None  # of the page, until its first line is read
    for number, line, _ in pieces:
        if match := _PAGE_START.match(line):
            yield END_OF_DOCUMENT
            title = _title(match["title"] or "")
        elif line.startswith("<doc "):
            raise UserError(f"{path}:{number}: expected a line <doc ...>, got {line[:40]!r}")
        elif not line.startswith("</doc>"):
            if _title(line) != title:
                yield line
            title = None


_KEYS_OF_PAGES = {
    "id",
    "url",
    "title",
    "text",
}  # of WikiExtractor's --json; newer versions add revid


def _read_records(records: Iterable[json_records.Record], key: str) -> Iterator[Document]:
    for place, record in records:
        text = record.get(key) if isinstance(record, dict) else None
        if not isinstance(text, str):
            expected = f"an object with a text {key!r}; --text_field names another"
            raise UserError(f"{place}: expected {expected}, got {_shape_of(record)}")
        lines: list[str] = prose.without_lone_surrogates(text).splitlines()
        is_page = key == "text" and record.keys() - {"revid"} == _KEYS_OF_PAGES
        if is_page and lines and _title(lines[0]) == _title(str(record["title"])):
            del lines[0]
        yield from _close_documents(lines, is_page)


def _title(text: str) -> str:
    return html.unescape(text).strip()


def _shape_of(record: Any) -> str:
    """What a value of JSON is, for messages."""
    if isinstance(record, dict):
        return "one with " + ", ".join(map(repr, itertools.islice(record, 10)))
    return "an array" if isinstance(record, list) else shortened(record)


def _close_documents(lines: Iterable[str | None], is_page: bool) -> Iterator[Document]:
    key = ""
    document: list[str] = []
    num_chars = 0
    for line in itertools.chain(lines, [END_OF_DOCUMENT]):
        if line is not None:
            document.append(line)
            num_chars += len(line) + 1
            if num_chars <= MAX_DOCUMENT_CHARS:
                continue
        if any(map(str.strip, document)):
            # A new key is so long that it contains more than a license.
            key = key or "\n".join(document)[:20_000]
            yield Document(key, document, is_page)
        key = "" if line is None else key
        document = []
        num_chars = 0


# Dropping: documents -> sentences that are prose.

_GAP = re.compile(r"\s[.,](?:\s|$)")
_MIN_LETTERS = 0.5  # share of the letters and their marks in a sentence


def _split_chunk(
    settings: SplitSettings, documents: list[Document]
) -> tuple[list[tuple[str, list[str]]], Counter]:
    """A worker's task: keys and sentences of the documents that are not dropped, and counts of all."""
    split_documents = []
    counts: Counter = Counter(documents=len(documents))
    for document in documents:
        sentences = split_document(document, settings, counts)
        if len(sentences) >= settings.min_sentences:
            counts["kept characters"] += sum(map(len, sentences))
            split_documents.append((document.key, cut_long(sentences, counts)))
        else:
            counts["short documents"] += 1
    return split_documents, counts


def split_document(document: Document, settings: SplitSettings, counts: Counter) -> list[str]:
    """The sentences of a document that are prose, in order; counts all, and those that are dropped."""
    sentences = []
    for paragraph in document.paragraphs(settings.line_breaks):
        is_title = document.is_page and len(paragraph.split()) <= MAX_TITLE_WORDS
        if prose.is_heading(paragraph) or (is_title and paragraph.endswith(".")):
            texts = [paragraph]
            is_part = True
        else:
            texts = prose.split_paragraph(paragraph, language=settings.language)
            is_part = False
        for text in texts:
            dropped = settings.drop_fragments and (is_part or is_fragment(text, document.is_page))
            counts["sentences"] += 1
            counts["characters"] += len(text)
            counts["fragments"] += dropped
            if not dropped:
                sentences.append(text)
    return sentences


def is_fragment(text: str, is_of_page: bool) -> bool:
    """Whether a text is no whole sentence."""
    if not prose.ends_as_sentence(text) or prose.letter_fraction(text) < _MIN_LETTERS:
        return True
    return is_of_page and (prose.starts_in_lower_case(text) or bool(_GAP.search(text)))


def cut_long(sentences: list[str], counts: Counter) -> list[str]:
    """Cuts sentences of more than `MAX_SENTENCE_CHARS`, between words if there are blanks."""
    parts = []
    for text in sentences:
        if len(text) > MAX_SENTENCE_CHARS:
            counts["cut"] += 1
            parts += textwrap.wrap(text, MAX_SENTENCE_CHARS, break_on_hyphens=False)
        else:
            parts.append(text)
    return parts


# Paragraphs of WikiExtractor pages.

_REFERENCE = re.compile(r"<ref[ >].*?(?:</ref>|/>)|<!--.*?-->")
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_EMPTY_BRACKETS = re.compile(r"\s*(?:\(\s*[,;:]*\s*\)|\[\s*\])")


def page_paragraphs(lines: Iterable[str]) -> list[str]:
    """The paragraphs and section titles of a WikiExtractor page, without remains of markup.

    Example: ["Ur () lies in Iraq.&lt;br&gt; It is old."] -> ["Ur lies in Iraq. It is old."]
    """
    paragraphs = []
    for line in lines:
        text = html.unescape(line)
        if "<" in text:
            text = _TAG.sub("", _REFERENCE.sub("", text))
        text = _EMPTY_BRACKETS.sub("", text).strip()
        # If WikiExtractor keeps the items of a list, it puts these characters in front of them.
        text = text.lstrip("*#:;•- ")
        if text:
            paragraphs.append(text)
    return paragraphs


# Paragraphs of plain text.

_LICENSE_EDGE = re.compile(r"\*{3} ?(START|END) OF (?:THE|THIS) PROJECT GUTENBERG")
_EMPHASIS = re.compile(r"(?<!\w)_([^_\n]+)_(?!\w)")
MAX_WRAPPED_CHARS = 160  # lines longer than this were not wrapped by hand or by an editor


def text_paragraphs(lines: list[str], *, line_breaks: str = "auto") -> list[str]:
    """The paragraphs of a plain text: a blank line always ends a paragraph; a line break may end it.

    Example: ["It was a wet", "and wind-", "swept day.", "", "He left."] ->
    ["It was a wet and wind-swept day.", "He left."]
    """
    lines = _without_license([line.strip() for line in lines])
    wrapped = is_hard_wrapped(lines) if line_breaks == "auto" else line_breaks == "wrapped"
    if not wrapped:
        return [line for line in lines if line]
    blocks = (list(block) for has_text, block in itertools.groupby(lines, bool) if has_text)
    return [_EMPHASIS.sub(r"\1", _join_lines(block)) for block in blocks]


def _without_license(lines: list[str]) -> list[str]:
    """The lines between Project Gutenberg's start and end marks, if there are any."""
    start = 0
    for index, line in enumerate(lines):
        if match := _LICENSE_EDGE.match(line):
            if match[1] == "END":
                return lines[start:index]
            start = index + 1
    return lines[start:]


def is_hard_wrapped(lines: Iterable[str]) -> bool:
    """Whether lines were broken to a width: except for the last lines of paragraphs, most end inside a sentence."""
    inner_lines = [line for line, following in itertools.pairwise(lines) if line and following]
    num_open = sum(not prose.ends_as_sentence(line) for line in inner_lines)
    num_long = sum(len(line) > MAX_WRAPPED_CHARS for line in inner_lines)
    return 0 < len(inner_lines) <= 2 * num_open and 20 * num_long <= len(inner_lines)


def _join_lines(lines: list[str]) -> str:
    """Joins wrapped lines; a hyphen or dash at the end of a line stays, without a blank after it."""
    text = lines[0]
    for line in lines[1:]:
        is_hyphen = text.endswith("-") and not text.endswith(" -")
        text += ("" if is_hyphen else prose.line_separator(text, line)) + line
    return text


program = Program(
    main=main,
    settings_classes=(SplitSettings,),
    description=__doc__,
)
run = flags.in_shell(program)

if __name__ == "__main__":
    run()
