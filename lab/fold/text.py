r"""Writes the plain lines of text from which the folded model is distilled: sentences, passages, questions, reviews.

    python -m lab.fold.text --data_dir=data --output_dir=work/fold

--data_dir contains text/wikipedia*/wiki_* (in the format of WikiExtractor), text/books/*.txt, race/train and the
training files of GLUE, whole in glue/ or in part in glue_partial/. Only training files of tasks are read, without their
labels. Half of the paragraphs are written as passages, the other half sentence by sentence: an encoder of sentences
meets both. train.txt has the lines in a random order, held_out.txt the last of them. long_train.txt and
long_held_out.txt have passages of Wikipedia of 110 to 400 words, which reach positions that the others do not.
"""

import csv
import dataclasses
import html
import json
import pathlib
import random
import re
from collections.abc import Iterable, Iterator

import sentencex

from albert_tf.core import files, flags
from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings, setting

HELD_OUT, LONG_HELD_OUT = 2000, 300
STUB_WORDS, PASSAGE_WORDS, MAX_WORDS, LONG_WORDS = 40, 90, 110, 400
_UNWANTED = re.compile(
    r"gutenberg|e-?text|transcriber|proofread|\[illustration|copyright|all rights reserved|printed by|ascii|www\.|http"
    r"|publisher",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?:;,—-][\"'”’)_\]]*$")
_NOTE = re.compile(r"\[(?:footnote|illustration|\d+|[a-z])[^\]]*\]", re.IGNORECASE)
_COLUMNS = {
    "MNLI": ("sentence1", "sentence2"),
    "QNLI": ("question", "sentence"),
    "QQP": ("question1", "question2"),
    "STS-B": ("sentence1", "sentence2"),
    "RTE": ("sentence1", "sentence2"),
    "MRPC": ("#1 String", "#2 String"),
    "SST-2": ("sentence",),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSettings(Settings):
    """Where the text is, and where the lines are written."""

    data_dir: str = setting(
        "", "Folder with text/, glue/, glue_partial/, race/.", required=True, input_path=True
    )
    output_dir: str = setting("", "Folder for train.txt and held_out.txt.", required=True)
    book_megabytes: int = setting(
        40, "Text of books to take, in megabytes: they are old and literary."
    )
    seed: int = setting(0, "Seed of the order of the lines.")


def is_prose(paragraph: str) -> bool:
    """Whether a paragraph of a book is part of its text."""
    words = paragraph.split()
    letters = sum(character.isalpha() or character == " " for character in paragraph)
    in_capitals = sum(word.isupper() and len(word) > 1 for word in words)
    with_digits = sum(any(map(str.isdigit, word)) for word in words)
    return (
        len(words) >= 3
        and letters >= 0.7 * len(paragraph)
        and in_capitals < 0.4 * len(words)
        and with_digits < 0.2 * len(words)
        and _SENTENCE_END.search(paragraph) is not None
        and not _UNWANTED.search(paragraph)
    )


def paragraphs_of_book(text: str) -> Iterator[str]:
    """The prose of a book."""
    text = _NOTE.sub("", text.replace("\r\n", "\n")).replace("_", "").replace("--", " - ")
    yield from filter(is_prose, (" ".join(part.split()) for part in re.split(r"\n\s*\n", text)))


def paragraphs_of_pages(text: str) -> Iterator[str]:
    """The paragraphs of a file of WikiExtractor, without stubs and headings."""
    for page in re.findall(r"<doc [^>]*>\n(.*?)</doc>", text, re.DOTALL):
        _title, _, body = page.partition("\n")
        lines = [
            html.unescape(line).replace("()", "").replace("  ", " ") for line in body.split("\n")
        ]
        lines = [line for line in lines if len(line.split()) >= 5 and _SENTENCE_END.search(line)]
        if sum(len(line.split()) for line in lines) > STUB_WORDS:
            yield from lines


def texts_of_tasks(folder: pathlib.Path) -> Iterator[str]:
    """The texts of the training files of tasks, without labels."""
    for task, columns in _COLUMNS.items():
        for path in (
            folder / "glue" / task / "train.tsv",
            folder / "glue_partial" / task / "train.tsv",
        ):
            if path.exists():
                with path.open(encoding="utf-8-sig", newline="") as file:
                    for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
                        yield from (row[column] or "" for column in columns)
    cola = folder / "glue" / "CoLA" / "train.tsv"
    if cola.exists():
        yield from (line.split("\t")[-1] for line in cola.read_text().splitlines())
    for path in sorted(folder.glob("race/train/*/*.txt")):
        passage = json.loads(path.read_text())
        yield from passage["article"].split("\n")
        yield from passage["questions"]


def lines_of(paragraph: str, rng: random.Random) -> Iterator[str]:
    """A paragraph as passages or, half the time, as its sentences."""
    sentences = [sentence.strip() for sentence in sentencex.segment("en", paragraph)]
    if rng.random() < 0.5:
        yield from sentences
        return
    passage: list[str] = []
    for sentence in sentences:
        passage.append(sentence)
        if len(" ".join(passage).split()) >= rng.randint(20, PASSAGE_WORDS):
            yield " ".join(passage)
            passage = []
    yield " ".join(passage)


def long_passages(paragraphs: Iterable[str], rng: random.Random) -> Iterator[str]:
    """Words of paragraphs that follow each other."""
    words: list[str] = []
    for paragraph in paragraphs:
        words += paragraph.split()
        count = rng.randint(MAX_WORDS, LONG_WORDS)
        if len(words) >= count:
            yield " ".join(words[:count])
            words = []


def _decoded(path: pathlib.Path) -> str:
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")


def main(settings: TextSettings) -> None:
    """Writes each distinct line once.

    Raises:
      UserError: --data_dir contains no pages.
    """
    folder, rng = pathlib.Path(settings.data_dir), random.Random(settings.seed)
    pages = sorted(folder.glob("text/wikipedia*/wiki_*"))
    if not pages:
        raise UserError(f"{folder}: expected text/wikipedia*/wiki_*; change --data_dir")
    by_file = [list(paragraphs_of_pages(_decoded(path))) for path in pages]
    wikipedia = [part for parts in by_file for part in parts]
    books = [
        part
        for path in sorted(folder.glob("text/books/*.txt"))
        for part in paragraphs_of_book(_decoded(path))
    ]
    rng.shuffle(books)
    total = 0
    for number, paragraph in enumerate(books):
        total += len(paragraph)
        if total > settings.book_megabytes * 1e6:
            del books[number:]
            break
    sources = {
        "wikipedia": [line for part in wikipedia for line in lines_of(part, rng)],
        "books": [line for part in books for line in lines_of(part, rng)],
        "tasks": list(texts_of_tasks(folder)),
    }
    lines: dict[str, None] = {}
    for name, found in sources.items():
        kept = [" ".join(line.split()[:MAX_WORDS]) for line in found if len(line.split()) >= 3]
        print(f"{name}: {len(kept):,} lines, {sum(map(len, kept)) / 1e6:.1f} MB")
        lines.update(dict.fromkeys(kept))
    order = list(lines)
    rng.shuffle(order)
    long_rng = random.Random(settings.seed + 1)
    long = [passage for parts in by_file for passage in long_passages(parts, long_rng)]
    long_rng.shuffle(long)
    parts = {
        "train.txt": order[:-HELD_OUT],
        "held_out.txt": order[-HELD_OUT:],
        "long_train.txt": long[:-LONG_HELD_OUT],
        "long_held_out.txt": long[-LONG_HELD_OUT:],
    }
    for name, part in parts.items():
        files.write_bytes(
            f"{settings.output_dir}/{name}", "".join(f"{line}\n" for line in part).encode()
        )


if __name__ == "__main__":
    flags.run(main, TextSettings, description=__doc__)
