"""Files with a word on each line, in the format of CoNLL; or tables with a sentence in each row.

    EU       NNP  B-ORG
    rejects  VBZ  O

Columns are separated by tabs or, in a file without tabs, by spaces. An empty line, or a line that begins with
-DOCSTART-, ends a sentence. In a table (JSON lines, Parquet, a folder of `datasets`), a row has a list of words and a
list of tags.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

from albert_tf.core.errors import UserError
from albert_tf.data.tables import chosen, has_lists, listed, read_lines, read_table
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
    is_table = has_lists(path)
    if is_table:
        groups = _rows_of_lists(path, source, columns)
    else:
        groups = _groups(path, source, columns, (token_column, tag_column))
    sentences, all_tags = [], []
    for row, words, tags in groups:
        for index, (word, tag) in enumerate(itertools.zip_longest(words, tags)):
            place = f"{path}:{row + index * (not is_table)}"
            if not word.strip():
                raise UserError(f"{place}: has no word; an empty line ends a sentence")
            if need_tags and not entities.is_tag(tag):
                raise UserError(
                    f"{place}: expected a tag such as O, B-LOC or I-LOC, got {tag[:80]!r};"
                    " --tag_column names the column of the tags"
                )
        sentences.append(Sentence(tuple(map(str.strip, words)), row=row))
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
    frame = read_table(path, source=source)
    names = [frame.columns[_position(column, frame.columns, path)] for column in columns]
    for row, cells in zip(frame.index, chosen(frame, names, source), strict=True):
        lists = [cell for cell in cells if isinstance(cell, list)]
        if len(lists) < len(columns) or len(set(map(len, lists))) > 1:
            raise UserError(
                f"{path}:{row}: expected lists of the same length in {' and '.join(map(repr, names))};"
                " --token_column and --tag_column name the columns"
            )
        if lists[0]:
            yield row, tuple(lists[0]), lists[1] if len(lists) > 1 else []


def _groups(
    path: str, source: str, columns: Sequence[str], known: Sequence[str]
) -> Iterator[Group]:
    """The sentences of a file with a word in each line; `known` are the columns of which `columns` are read."""
    lines = read_lines(path, source)
    separator = "\t" if any("\t" in line.strip() for line in lines) else None
    names = {column for column in known if not _is_position(column)}
    width, positions = 0, None
    words: list[str] = []
    tags: list[str] = []
    for row, line in enumerate([*lines, ""], start=1):
        fields = [field.strip() for field in line.split(separator)]
        if not any(fields) or fields[0].startswith(_DOCUMENT):
            if words:
                yield row - len(words), tuple(words), tags
            words, tags = [], []
            continue
        if positions is None:
            width = len(fields)
            positions = [_position(column, fields, f"{path}:{row}") for column in columns]
            if names & {*fields}:
                continue  # the line has the names of the columns
        if len(fields) != width:
            raise UserError(f"{path}:{row}: expected {width} columns, got {len(fields)}")
        word, *tag = (fields[position] for position in positions)
        words.append(word)
        tags += tag


def _is_position(column: str) -> bool:
    return column in (FIRST, LAST) or column.isdecimal()


def _position(column: str, header: Sequence[str], place: str) -> int:
    """Index of a column."""
    if column in (FIRST, LAST):
        return 0 if column == FIRST else len(header) - 1
    if column.isdecimal() and int(column) <= len(header):
        return int(column) - 1
    if column not in header:
        raise UserError(f"{place}: has no column {column!r}, only {listed(list(header))}")
    return list(header).index(column)
