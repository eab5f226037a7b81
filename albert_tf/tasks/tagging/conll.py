"""Files with a word on each line, in the format of CoNLL or as a tab-separated table.

    EU       NNP  B-ORG
    rejects  VBZ  O

Columns are separated by tabs or, in a file without tabs, by spaces. An empty line, or a line that begins with
-DOCSTART-, ends a sentence.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from albert_tf.core.errors import UserError
from albert_tf.tasks.classification.tsv import parse_value, read_lines
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
    """The sentences of a file, and their tags in IOB2; None if they were not read."""

    path: str
    sentences: tuple[Sentence, ...]
    tags: tuple[tuple[str, ...], ...] | None

    def labels(self) -> tuple[str, ...]:
        """The labels of all types of entities in the file."""
        types = {entities.letter_and_type(tag)[1] for tags in self.tags or () for tag in tags}
        return entities.iob2_labels(types - {""})

    def labelled(self, labels: Sequence[str]) -> list[Sentence]:
        """The sentences with the indices of their tags."""
        indices = {label: index for index, label in enumerate(labels)}
        return [
            dataclasses.replace(
                sentence,
                tags=tuple(
                    int(parse_value(tag, indices, f"{self.path}:{row}"))
                    for row, tag in enumerate(tags, start=sentence.row)
                ),
            )
            for sentence, tags in zip(self.sentences, self.tags or (), strict=True)
        ]


def read_tagged(
    path: str, *, token_column: str, tag_column: str, need_tags: bool, flag: str
) -> TaggedFile:
    """Reads a UTF-8 file, with or without byte-order mark, with any line ends.

    Args:
      token_column: `first`, `last`, a number from 1, or a name in the first line.
      tag_column: the same for the tags, of scheme IOB1, IOB2, BIOES, BILOU or BMES.
      need_tags: whether tags are read; if not, a file for predictions need not have any.
    """
    source = f"--{flag}={path}"
    lines = read_lines(path, source)
    sentences, all_tags = [], []
    for row, words, tags in _groups(path, lines, token_column, tag_column if need_tags else ""):
        sentences.append(Sentence(words, row=row))
        all_tags.append(tuple(entities.to_iob2(tags)))
    if not sentences:
        raise UserError(f"{source}: contains no words")
    if need_tags and not any(tag != entities.OUTSIDE for tags in all_tags for tag in tags):
        raise UserError(
            f"{source}: every tag is {entities.OUTSIDE}; name the column of the tags with --tag_column"
        )
    return TaggedFile(path, tuple(sentences), tuple(all_tags) if need_tags else None)


def _groups(
    path: str, lines: Sequence[str], token_column: str, tag_column: str
) -> Iterator[tuple[int, tuple[str, ...], list[str]]]:
    """The line number, the words and the tags of each sentence; the number is that of its first line."""
    separator = "\t" if any("\t" in line.strip() for line in lines) else " "
    width, positions = 0, None
    first_row = 0
    words: list[str] = []
    tags: list[str] = []
    for row, line in enumerate([*lines, ""], start=1):
        if not line.strip() or line.startswith(_DOCUMENT):
            if words:
                yield first_row, tuple(words), tags
            first_row, words, tags = 0, [], []
            continue
        fields = line.split(separator) if separator == "\t" else line.split()
        if positions is None:
            width = len(fields)
            columns = [token_column, *([tag_column] if tag_column else [])]
            positions = [_position(column, fields, f"{path}:{row}") for column in columns]
            if not all(map(_is_position, columns)):
                continue  # the line has the names of the columns
        if len(fields) != width:
            raise UserError(f"{path}:{row}: expected {width} columns, got {len(fields)}")
        word, *tag = (fields[position].strip() for position in positions)
        if not word:
            raise UserError(f"{path}:{row}: has no word; an empty line ends a sentence")
        if tag and not entities.is_tag(tag[0]):
            raise UserError(
                f"{path}:{row}: expected a tag such as O, B-LOC or I-LOC, got {tag[0][:80]!r};"
                " --tag_column names the column of the tags"
            )
        first_row = first_row or row
        words.append(word)
        tags += tag


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
