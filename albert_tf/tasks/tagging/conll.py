"""Files with a word on each line, in the format of CoNLL; or tables with a sentence in each row.

    EU       NNP  B-ORG
    rejects  VBZ  O

A line's columns are separated by tabs or, without a tab, by spaces; other white space, such as U+00A0, belongs to
words. An empty line, or a line that begins with -DOCSTART-, ends a sentence; before a sentence, lines that begin with #
and have no tag are comments. In a table (JSON lines, Parquet, a folder of `datasets`, CSV), a row has a list of words
and a list of tags.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from albert_tf.core.errors import UserError
from albert_tf.tasks.labels import label_indices, parse_value
from albert_tf.tasks.tagging import entities, tag_forms
from albert_tf.tasks.tagging.settings import BARE, FIRST, LAST, PREFIXED, WORDS
from albert_tf.tasks.tagging.tag_forms import TagForm
from albert_tf.user_files.table_files import (
    as_list,
    chosen,
    has_lists,
    listed,
    read_lines,
    read_table,
)

_DOCUMENT = "-DOCSTART-"
_BLANKS = " \t\r\v\f"
# Usual names of columns, in small letters.
_NAMES_OF_WORDS = frozenset(("word", "words", "token", "tokens", "form", "text"))
_NAMES_OF_ENTITIES = ("label", "labels", "ner", "ner_tag", "ner_tags", "entity", "entities")
_NAMES_OF_SYNTAX = ("pos", "pos_tag", "pos_tags", "upos", "xpos", "chunk")
_NAMES_OF_TAGS = frozenset(("tag", "tags") + _NAMES_OF_ENTITIES + _NAMES_OF_SYNTAX)
# A line for several words, or for a word that is not there.
_PART_OF_CONLLU = re.compile(r"[0-9]+[-.][0-9]+")


@dataclasses.dataclass(frozen=True)
class Sentence:
    """Words, and a tag for each of them."""

    words: tuple[str, ...]
    tags: tuple[int, ...] | None = None  # indices of labels
    row: int | str = 0  # number of the first word's line, from 1 on, or where it is in a table

    def place(self, word: int = 0) -> str:
        """Where a word is in the file, for messages."""
        return self.row if isinstance(self.row, str) else f"line {self.row + word}"


@dataclasses.dataclass(frozen=True)
class TaggedFile:
    """The sentences of a file and their tags, if read: in IOB2, or of --tag_scheme=words as they are."""

    path: str
    sentences: tuple[Sentence, ...]
    tags: tuple[tuple[str, ...], ...] | None
    scheme: str = PREFIXED
    form: TagForm = tag_forms.USUAL  # of the prefixed tags in the file

    def labels(self) -> tuple[str, ...]:
        """The labels of all types of entities in the file, or of --tag_scheme=words its tags."""
        tags = {tag for tags in self.tags or () for tag in tags}
        if self.scheme == WORDS:
            return tuple(sorted(tags))
        return entities.iob2_labels({entities.letter_and_type(tag)[1] for tag in tags} - {""})

    def labelled(self, labels: Sequence[str]) -> list[Sentence]:
        """The sentences with the indices of their tags."""
        indices = label_indices(labels)
        sentences = []
        for sentence, tags in zip(self.sentences, self.tags or (), strict=True):
            numbers = [
                int(parse_value(tag, indices, f"{self.path}: {sentence.place(word)}"))
                for word, tag in enumerate(tags)
            ]
            sentences.append(dataclasses.replace(sentence, tags=tuple(numbers)))
        return sentences


def read_tagged(
    path: str,
    *,
    token_column: str,
    tag_column: str,
    need_tags: bool,
    flag: str,
    scheme: str = PREFIXED,
) -> TaggedFile:
    """Reads a UTF-8 file, with or without byte-order mark, with any line ends; or a table of `user_files.table_files`.

    Args:
      token_column: `first`, `last`, a number from 1, or a name in the first line or of a column of the table.
      tag_column: the same for the tags.
      need_tags: whether tags are read; if not, a file for predictions need not have any.
      scheme: what the tags are (see `TaggingConfig.tag_scheme`); prefixed tags are IOB1, IOB2, BIOES, BILOU, BMES or
        BMEWO, in any form of `tag_forms`.
    """
    source = f"--{flag}={path}"
    columns = [token_column, tag_column] if need_tags else [token_column]
    if has_lists(path):
        groups = list(_rows_of_lists(path, source, columns, keeps_empty=flag == "predict_file"))
    else:
        groups = list(_groups(path, source, columns, (token_column, tag_column), scheme))

    different_tags = {tag for _, _, tags in groups for tag in tags}
    form = tag_forms.USUAL
    if scheme == PREFIXED:
        form = tag_forms.form_of(different_tags) or tag_forms.USUAL

    # In a file of bare types that has no O, o means the same.
    has_outside = entities.OUTSIDE in different_tags
    outside = entities.OUTSIDE if has_outside else entities.OUTSIDE.lower()

    sentences: list[Sentence] = []
    all_tags: list[tuple[str, ...]] = []
    for row, words, tags in groups:
        sentence = Sentence(words, row=row)
        for index, (word, tag) in enumerate(itertools.zip_longest(words, tags)):
            _check_word(word, tag, scheme, form, f"{path}: {sentence.place(index)}")
        sentences.append(sentence)

        if scheme == PREFIXED:
            tags = entities.to_iob2([form.read(tag) for tag in tags])
        elif scheme == BARE:
            tags = entities.to_iob2([_tag_of_bare_type(tag, outside) for tag in tags])
        all_tags.append(tuple(tags))

    _check_has_words(sentences, source)
    if need_tags and _are_outside(all_tags):
        raise UserError(f"{source}: every tag is O; name the column of the tags with --tag_column")
    if form != tag_forms.USUAL:
        print(f"{source}: tags are written as {form.name}, and answers will be, too", flush=True)
    tags_of_file = tuple(all_tags) if need_tags else None
    return TaggedFile(path, tuple(sentences), tags_of_file, scheme, form)


def _check_has_words(sentences: Sequence[Sentence], source: str) -> None:
    num_empty = sum(not sentence.words for sentence in sentences)
    if num_empty == len(sentences):
        raise UserError(f"{source}: contains no words")
    if num_empty:
        print(f"{source}: {num_empty:,} of {len(sentences):,} rows have no words", flush=True)


def _are_outside(tags_of_sentences: Iterable[Sequence[str]]) -> bool:
    """Whether no word is in an entity."""
    return all(tag == entities.OUTSIDE for tags in tags_of_sentences for tag in tags)


def _tag_of_bare_type(type: str, outside: str) -> str:
    """The tag of a word in a file of bare types: LOC -> I-LOC; `outside` -> O; a tag with a letter stays."""
    if type == outside:
        return entities.OUTSIDE
    return type if entities.is_tag(type) else f"I-{type}"


def _check_word(word: str, tag: str | None, scheme: str, form: TagForm, place: str) -> None:
    if not word:
        raise UserError(f"{place}: has no word; an empty line ends a sentence")
    if tag is None:
        return
    if not tag or any(character in tag for character in "\t\r\n"):
        raise UserError(f"{place}: expected a tag in one line, got {tag[:80]!r}")
    if scheme == PREFIXED and not form.matches(tag):
        forms = "PER-B, b-per or B_PER are read, too, if all tags of the file are written so"
        advice = f"{forms}; see --tag_column, or --tag_scheme={BARE} or {WORDS} for other tags"
        got = f"expected a tag such as O, B-LOC or I-LOC, got {tag[:80]!r}"
        raise UserError(f"{place}: {got}; {advice}")


Group = tuple[int | str, tuple[str, ...], list[str]]  # number of the first line, words, tags


def _rows_of_lists(
    path: str, source: str, columns: Sequence[str], *, keeps_empty: bool
) -> Iterator[Group]:
    """The sentences of a table with a list of words, and a list of tags, in each row; without words only if kept."""
    frame = read_table(path, source=source, empty_rows=keeps_empty)
    names = [frame.columns[_position(column, frame.columns, path)] for column in columns]
    for row, cells in zip(frame.index, chosen(frame, names, source), strict=True):
        lists = []
        for cell in cells:
            is_missing = keeps_empty and not cell
            words_or_tags = [] if is_missing else as_list(cell, f"{path}: {row}")
            if isinstance(words_or_tags, list):
                lists.append(words_or_tags)

        has_all_lists = len(lists) == len(columns)
        if not has_all_lists or len({len(words_or_tags) for words_or_tags in lists}) > 1:
            expected = f"lists of the same length in {' and '.join(map(repr, names))}"
            raise UserError(f"{path}: {row}: expected {expected} (--token_column, --tag_column)")

        words = lists[0]
        tags = lists[1] if len(lists) > 1 else []
        if words or keeps_empty:
            yield row, tuple(words), tags


def _groups(
    path: str, source: str, columns: Sequence[str], named: Sequence[str], scheme: str
) -> Iterator[Group]:
    """The sentences of a file with a word in each line; `named` are the columns of which `columns` are read."""
    lines = read_lines(path, source)
    rows = [_fields(line) for line in lines]
    first_row = _first_row(rows)
    width = len(first_row) or next((len(row) for row in rows if any(row)), 0)
    positions: list[int] | None = None  # of the columns, known from the first line with words on
    words: list[str] = []
    tags: list[str] = []
    for number, (line, row) in enumerate(zip(lines, rows, strict=True), start=1):
        if not any(row) or row[0].startswith(_DOCUMENT):
            if words:
                yield number - len(words), tuple(words), tags
            words = []
            tags = []
            continue

        fields = _fields_of_width(line, row, width)
        if line.startswith("#") and not words and _is_comment(fields, width, first_row, scheme):
            continue
        if positions is None:
            positions = [_position(column, fields, f"{path}: line {number}") for column in columns]
            if _names_columns(fields, named, rows, path):
                continue
        if len(fields) != width:
            raise UserError(f"{path}: line {number}: expected {width} columns, got {len(fields)}")
        if width == 10 and _PART_OF_CONLLU.fullmatch(fields[0]):
            continue

        words.append(fields[positions[0]])
        tags += [fields[position] for position in positions[1:]]
    if words:
        yield len(lines) + 1 - len(words), tuple(words), tags


def _first_row(rows: Sequence[Sequence[str]]) -> Sequence[str]:
    """The columns of the first line that is neither empty nor like a comment; without one, none."""
    for row in rows:
        if any(row) and not row[0].startswith(("#", _DOCUMENT)):
            return row
    return []


def _fields_of_width(line: str, fields: list[str], width: int) -> list[str]:
    """The columns of a line; a line with tabs and spaces is split at both, if it then has the width of the file."""
    if len(fields) == width:
        return fields
    parts = re.split(f"[{_BLANKS}]+", line.strip(_BLANKS))
    return parts if len(parts) == width else fields


def _names_columns(
    fields: Sequence[str], named: Sequence[str], rows: Sequence[Sequence[str]], path: str
) -> bool:
    """Whether a file's first line has the names of its columns: those of flags, or usual ones."""
    names = {column for column in named if column not in (FIRST, LAST) and not column.isdecimal()}
    if names:
        return bool(names & {*fields})
    return _is_header(fields, named, rows, path)


def _fields(line: str) -> list[str]:
    """The columns of a line."""
    if "\t" in line.rstrip(_BLANKS):
        return [field.strip(_BLANKS) for field in line.split("\t")]
    return re.split(f"[{_BLANKS}]+", line.strip(_BLANKS))


def _is_comment(fields: Sequence[str], width: int, first: Sequence[str], scheme: str) -> bool:
    """Whether a line with # is a comment: it has other columns than the first word's, or no tag where that has one."""
    if len(fields) != width:
        return True
    is_tagged = scheme == PREFIXED and first and tag_forms.is_tag(first[-1])
    return bool(is_tagged and width > 1 and not tag_forms.is_tag(fields[-1]))


def _is_header(
    fields: Sequence[str], named: Sequence[str], rows: Sequence[Sequence[str]], path: str
) -> bool:
    """Whether a file's first line has usual names of the columns, of which no other line has that of the tags."""
    numbers = [int(column) for column in named if column.isdecimal()]
    if len(fields) < 2 or max(numbers, default=0) > len(fields):
        return False
    token, tag = (_position(column, fields, path) for column in named)
    if fields[token].lower() not in _NAMES_OF_WORDS or fields[tag].lower() not in _NAMES_OF_TAGS:
        return False
    is_header = sum(len(row) > tag and row[tag] == fields[tag] for row in rows) == 1
    if is_header:
        print(f"{path}: the first line is read as the names of the columns", flush=True)
    return is_header


def _position(column: str, header: Sequence[str], place: str) -> int:
    """Index of a column."""
    if column in (FIRST, LAST):
        return 0 if column == FIRST else len(header) - 1
    if column.isdecimal() and int(column) <= len(header):
        return int(column) - 1
    if column not in header:
        raise UserError(f"{place}: has no column {column!r}, only {listed(list(header))}")
    return list(header).index(column)
