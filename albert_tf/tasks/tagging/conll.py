"""Files with a word on each line, in the format of CoNLL, as TSV or CSV; or tables with a sentence in each row.

    EU       NNP  B-ORG
    rejects  VBZ  O

Columns are separated by tabs or, in a file without tabs, by spaces. An empty line, or a line that begins with
-DOCSTART-, ends a sentence. In a table (JSON lines, Parquet, a folder of `datasets`), a row has a list of words and a
list of tags.
"""

import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.data.tables import TABLES_OF_VALUES, csv_rows, read_lines, read_table
from albert_tf.tasks.classification.tsv import parse_value
from albert_tf.tasks.tagging import entities
from albert_tf.tasks.tagging.settings import FIRST, LAST

_DOCUMENT = "-DOCSTART-"


@dataclasses.dataclass(frozen=True)
class Sentence:
    """Words, and a tag for each of them.

    Attributes:
      tags: indices of the words' labels in IOB2; None without tags.
      row: line number of its first word, counted from 1; 0 if it does not come from a file.
    """

    words: tuple[str, ...]
    tags: tuple[int, ...] | None = None
    row: int = 0


@dataclasses.dataclass(frozen=True)
class TaggedFile:
    """The sentences of a file, with a word in each line or a sentence in each row, and their tags in IOB2, if read."""

    path: str
    sentences: tuple[Sentence, ...]
    tags: tuple[tuple[str, ...], ...] | None
    has_sentences_in_rows: bool = False

    def labels(self) -> tuple[str, ...]:
        """The labels of all types of entities in the file."""
        types = {entities.letter_and_type(tag)[1] for tags in self.tags or () for tag in tags}
        return entities.iob2_labels(types - {""})

    def labelled(self, labels: Sequence[str]) -> list[Sentence]:
        """The sentences with the indices of their tags."""
        indices = {label: index for index, label in enumerate(labels)}
        lines_per_word = 0 if self.has_sentences_in_rows else 1
        return [
            dataclasses.replace(
                sentence,
                tags=tuple(
                    int(
                        parse_value(
                            tag, indices, f"{self.path}:{sentence.row + word * lines_per_word}"
                        )
                    )
                    for word, tag in enumerate(tags)
                ),
            )
            for sentence, tags in zip(self.sentences, self.tags or (), strict=True)
        ]


def read_tagged(
    path: str, *, token_column: str, tag_column: str, need_tags: bool, flag: str
) -> TaggedFile:
    """Reads a UTF-8 file, with or without byte-order mark, with any line ends; or a table of `data.tables`.

    Args:
      token_column: `first`, `last`, a number from 1, or a name in the first line or of a column of the table.
      tag_column: the same for the tags, of scheme IOB1, IOB2, BIOES, BILOU or BMES.
      need_tags: whether tags are read; if not, a file for predictions need not have any.
    """
    source = f"--{flag}={path}"
    columns = [token_column, *([tag_column] if need_tags else [])]
    is_table = os.path.splitext(path)[1].lower() in TABLES_OF_VALUES or files.is_folder(path)
    if is_table:
        groups = _rows_of_lists(path, source, columns)
    else:
        groups = _groups(path, source, columns, (token_column, tag_column))
    sentences, all_tags = [], []
    for row, words, tags in groups:
        sentences.append(Sentence(words, row=row))
        all_tags.append(tuple(entities.to_iob2(tags)))
    if not sentences:
        raise UserError(f"{source}: contains no words")
    if need_tags and not any(tag != entities.OUTSIDE for tags in all_tags for tag in tags):
        raise UserError(
            f"{source}: every tag is {entities.OUTSIDE}; name the column of the tags with --tag_column"
        )
    read_tags = tuple(all_tags) if need_tags else None
    return TaggedFile(path, tuple(sentences), read_tags, has_sentences_in_rows=is_table)


Group = tuple[int, tuple[str, ...], list[str]]  # number of the first line, words, tags


def _rows_of_lists(path: str, source: str, columns: Sequence[str]) -> Iterator[Group]:
    """The sentences of a table with a list of words, and a list of tags, in each row."""
    table = read_table(path, source=source)
    positions = [_position(column, table.columns, path) for column in columns]
    names = [f"column {table.columns[position]!r}" for position in positions]
    for row, cells in table.rows:
        place = f"{path}:{row}"
        words, *tags = (cells[position] for position in positions)
        if not isinstance(words, list) or not all(map(str.strip, words)):
            raise UserError(
                f"{place}: expected a list of words in {names[0]}; --token_column names the column"
            )
        if tags and (not isinstance(tags[0], list) or len(tags[0]) != len(words)):
            expected = f"a list of {len(words)} tags in {names[1]}"
            raise UserError(f"{place}: expected {expected}; --tag_column names the column")
        if words:
            checked = [_checked_tag(tag, place) for tag in itertools.chain(*tags)]
            yield row, tuple(map(str.strip, words)), checked


def _fields_of_lines(path: str, source: str) -> Iterator[tuple[int, list[str]]]:
    """The number and the fields of each line; no fields for a line that ends a sentence."""
    if path.lower().endswith(".csv"):
        lines: Iterable = csv_rows(path, source)
    else:
        texts = read_lines(path, source)
        separator = "\t" if any("\t" in text.strip() for text in texts) else None
        lines = ((row, text.split(separator)) for row, text in enumerate(texts, start=1))
    for row, fields in lines:
        is_end = not "".join(fields).strip() or fields[0].startswith(_DOCUMENT)
        yield row, [] if is_end else fields


def _groups(
    path: str, source: str, columns: Sequence[str], known: Sequence[str]
) -> Iterator[Group]:
    """The sentences of a file with a word in each line; `known` are the columns of which `columns` are read."""
    width, positions = 0, None
    first_row = 0
    words: list[str] = []
    tags: list[str] = []
    for row, fields in [*_fields_of_lines(path, source), (0, [])]:
        if not fields:
            if words:
                yield first_row, tuple(words), tags
            first_row, words, tags = 0, [], []
            continue
        if positions is None:
            width = len(fields)
            positions = [_position(column, fields, f"{path}:{row}") for column in columns]
            names = {column for column in known if not _is_position(column)}
            if names & set(map(str.strip, fields)):
                continue  # the line has the names of the columns
        if len(fields) != width:
            raise UserError(f"{path}:{row}: expected {width} columns, got {len(fields)}")
        word, *tag = (fields[position].strip() for position in positions)
        if not word:
            raise UserError(f"{path}:{row}: has no word; an empty line ends a sentence")
        first_row = first_row or row
        words.append(word)
        tags += [_checked_tag(tag, f"{path}:{row}") for tag in tag]


def _checked_tag(tag: str, place: str) -> str:
    if not entities.is_tag(tag):
        raise UserError(
            f"{place}: expected a tag such as O, B-LOC or I-LOC, got {tag[:80]!r}; --tag_column names the column of the"
            " tags"
        )
    return tag


def _is_position(column: str) -> bool:
    return column in (FIRST, LAST) or column.isdecimal()


def _position(column: str, header: Sequence[str], place: str) -> int:
    """Index of a column."""
    if column in (FIRST, LAST):
        return 0 if column == FIRST else len(header) - 1
    if column.isdecimal():
        if int(column) > len(header):
            raise UserError(f"{place}: has no column {column}, only {len(header)}")
        return int(column) - 1
    names = [name.strip() for name in header]
    if names.count(column) != 1:
        raise UserError(f"{place}: expected one column {column!r}, got {', '.join(names)[:200]}")
    return names.index(column)
