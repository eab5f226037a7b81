r"""Writes the plain lines of text from which the folded model is distilled: sentences, passages, questions, reviews.

    python -m lab.fold.text --data_dir=data --output_dir=work/fold

--data_dir contains text/wikipedia*/wiki_* (in the format of WikiExtractor), text/books/*.txt, race/train, squad/ and
the training files of GLUE, whole in glue/ or in part in glue_partial/. Only training files of tasks are read, without
their labels; of SQuAD's development sets, the articles on which `lab.fine_tuning` trains. Half of the paragraphs are
written as passages, the other half sentence by sentence: an encoder of sentences meets both.

    train.txt, held_out.txt              lines in a random order, and the last of them
    long_train.txt, long_held_out.txt    passages of 110 to 400 words, which reach positions that the others do not
    pairs_train.txt, pairs_held_out.txt  a question, title, sentence or hypothesis, a tab, and the text that belongs to
                                         it: tokens of the second segment, which attend to those of the first
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

HELD_OUT = 2000
LONG_HELD_OUT = 300
PAIRS_HELD_OUT = 300
SQUAD_ARTICLES = 40  # of dev-v1.1.json, for training; the others are scored
FIRST_WORDS = 60  # of the first text of a pair
STUB_WORDS = 40
PASSAGE_WORDS = 90
MAX_WORDS = 110
LONG_WORDS = 400
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
    without_race: bool = setting(
        False, "Whether to leave out RACE, which is available for non-commercial research only."
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
    for page in _pages(text):
        yield from paragraphs_of_page(page)


def paragraphs_of_page(page: str) -> list[str]:
    """The paragraphs of one page, without its title and headings; none of a stub."""
    _title, _, body = page.partition("\n")
    lines = [html.unescape(line).replace("()", "").replace("  ", " ") for line in body.split("\n")]
    lines = [line for line in lines if len(line.split()) >= 5 and _SENTENCE_END.search(line)]
    num_words = sum(len(line.split()) for line in lines)
    return lines if num_words > STUB_WORDS else []


def texts_of_glue(folder: pathlib.Path) -> Iterator[str]:
    """The texts of GLUE's training files, without labels."""
    for task, columns in _COLUMNS.items():
        for path in (
            folder / "glue" / task / "train.tsv",
            folder / "glue_partial" / task / "train.tsv",
        ):
            if path.exists():
                for row in _rows(path):
                    yield from (row[column] or "" for column in columns)
    cola = folder / "glue" / "CoLA" / "train.tsv"
    if cola.exists():
        yield from (line.split("\t")[-1] for line in cola.read_text().splitlines())


def texts_of_race(folder: pathlib.Path) -> Iterator[str]:
    """The passages and questions of RACE's training files, without options and answers."""
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


def pairs_of_squad(folder: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Questions with their paragraphs, of the articles that are not scored, in both versions of SQuAD."""
    first = json.loads((folder / "squad" / "dev-v1.1.json").read_text())["data"]
    titles = {article["title"] for article in first[:SQUAD_ARTICLES]}
    second = json.loads((folder / "squad" / "dev-v2.0.rebuilt.json").read_text())["data"]
    for article in first + second:
        if article["title"] in titles:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    yield question["question"], paragraph["context"]


def pairs_of_race(folder: pathlib.Path, rng: random.Random) -> Iterator[tuple[str, str]]:
    """Questions with their passages, alone and with one of the options."""
    for path in sorted(folder.glob("race/train/*/*.txt")):
        passage = json.loads(path.read_text())
        for question, options in zip(passage["questions"], passage["options"], strict=True):
            yield question, passage["article"]
            yield f"{question.replace('_', ' ')} {rng.choice(options)}", passage["article"]


def pairs_of_glue(folder: pathlib.Path) -> Iterator[tuple[str, str]]:
    """The pairs of texts of GLUE's training files."""
    for task, columns in _COLUMNS.items():
        if len(columns) == 2:
            for path in sorted(folder.glob(f"glue*/{task}/train.tsv")):
                for row in _rows(path):
                    first, second = (row[column] or "" for column in columns)
                    yield first, second


def pairs_of_page(
    title: str, paragraphs: Iterable[str], rng: random.Random
) -> Iterator[tuple[str, str]]:
    """Passages of a page, each with the title or with some words of the page."""
    words = " ".join(paragraphs).split()
    start = 0
    while len(words) - start >= STUB_WORDS:
        passage = words[start : start + rng.randint(60, 300)]
        start += len(passage)
        if rng.random() < 0.3:
            first = title
        else:
            place = rng.randrange(len(words))
            first = " ".join(words[place : place + rng.randint(5, 25)])
        yield first, " ".join(passage)


def _pages(text: str) -> list[str]:
    """The pages of a file of WikiExtractor, each with its title in the first line."""
    return re.findall(r"<doc [^>]*>\n(.*?)</doc>", text, re.DOTALL)


def _rows(path: pathlib.Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        yield from csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)


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
    folder = pathlib.Path(settings.data_dir)
    rng = random.Random(settings.seed)
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
    texts_of_tasks = list(texts_of_glue(folder))
    if not settings.without_race:
        texts_of_tasks += texts_of_race(folder)
    sources = {
        "wikipedia": [line for part in wikipedia for line in lines_of(part, rng)],
        "books": [line for part in books for line in lines_of(part, rng)],
        "tasks": texts_of_tasks,
    }
    lines: dict[str, None] = {}
    for name, lines_of_source in sources.items():
        kept = [
            " ".join(line.split()[:MAX_WORDS]) for line in lines_of_source if len(line.split()) >= 3
        ]
        print(f"{name}: {len(kept):,} lines, {sum(map(len, kept)) / 1e6:.1f} MB")
        lines.update(dict.fromkeys(kept))
    order = list(lines)
    rng.shuffle(order)
    long_rng = random.Random(settings.seed + 1)
    long = [passage for parts in by_file for passage in long_passages(parts, long_rng)]
    long_rng.shuffle(long)
    pairs = _pairs(folder, pages, random.Random(settings.seed + 2), settings.without_race)
    print(f"pairs: {len(pairs):,} lines, {sum(map(len, pairs)) / 1e6:.1f} MB")
    parts = {
        "train.txt": order[:-HELD_OUT],
        "held_out.txt": order[-HELD_OUT:],
        "long_train.txt": long[:-LONG_HELD_OUT],
        "long_held_out.txt": long[-LONG_HELD_OUT:],
        "pairs_train.txt": pairs[:-PAIRS_HELD_OUT],
        "pairs_held_out.txt": pairs[-PAIRS_HELD_OUT:],
    }
    for name, part in parts.items():
        files.write_bytes(
            f"{settings.output_dir}/{name}", "".join(f"{line}\n" for line in part).encode()
        )


def _pairs(
    folder: pathlib.Path, pages: list[pathlib.Path], rng: random.Random, without_race: bool
) -> list[str]:
    """Each distinct pair once, as a line with a tab, in a random order."""
    pairs = list(pairs_of_squad(folder))
    if not without_race:
        pairs += pairs_of_race(folder, rng)
    pairs += pairs_of_glue(folder)
    for path in pages:
        for page in _pages(_decoded(path)):
            title = page.partition("\n")[0]
            pairs += pairs_of_page(title, paragraphs_of_page(page), rng)
    lines = {
        f"{' '.join(first.split()[:FIRST_WORDS])}\t{' '.join(second.split())}": None
        for first, second in pairs
    }
    order = list(lines)
    rng.shuffle(order)
    return order


if __name__ == "__main__":
    flags.run(main, TextSettings, description=__doc__)
