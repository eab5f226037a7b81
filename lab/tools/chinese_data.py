"""Makes the Chinese texts, vocabulary and split of docs/results/chinese.md.

    python -m lab.tools.chinese_data data/chinese data/tagging/msra_zh WORK

The program writes WORK/shopping/{train,dev}.tsv, which are 6,000 and 2,000 of the reviews with
their categories; WORK/{train,held_out}.txt, the text for pretraining, one sentence a line; and
WORK/vocab.txt, the tokens of the Chinese vocabulary that occur at least three times in the text,
and ASCII. The text for pretraining contains no text of a development file of reviews, and no text
that differs from such a text only in punctuation.
"""

import argparse
import collections
import csv
import pathlib
import random
import re
import unicodedata

from albert_tf import Tokenizer
from albert_tf.core import files

DEV, TRAIN = 2000, 6000  # reviews
SENTENCES_OF_DOCUMENT = 10  # for files that contain only sentences
_SENTENCE = re.compile(r"[^。！？!?；;…]+[。！？!?；;…~]*|[。！？!?；;…]+")
_SPECIAL = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
_ASCII = re.compile(r"(##)?[\x21-\x7e]")


def main(chinese: pathlib.Path, msra: pathlib.Path, work: pathlib.Path) -> None:
    """Writes all files."""
    reviews = distinct_reviews(chinese / "online_shopping_10_cats.csv")
    sentiments = {
        name: rows_of(chinese / "ChnSentiCorp" / f"{name}.tsv") for name in ("train", "dev")
    }
    held_out = {key_of(text) for text in sentiments["dev"]}
    shopping = {"dev": reviews[:DEV], "train": reviews[DEV : DEV + TRAIN]}
    for name, rows in shopping.items():
        lines = ["category\ttext", *(f"{category}\t{text}" for text, category in rows)]
        write(work / "shopping" / f"{name}.tsv", lines)

    texts = [text for text, _ in reviews[DEV:]]
    known = {key_of(text) for text, _ in reviews}
    texts += [text for text in sentiments["train"] if key_of(text) not in known]
    documents = [sentences(text) for text in texts if key_of(text) not in held_out]
    tagged = (msra / "train.conll").read_text("utf-8").strip().split("\n\n")
    tagged = ["".join(line.partition("\t")[0] for line in text.split("\n")) for text in tagged]
    for start in range(0, len(tagged), SENTENCES_OF_DOCUMENT):
        group = tagged[start : start + SENTENCES_OF_DOCUMENT]
        documents.append([part for text in group for part in sentences(text)])
    news = (chinese / "news_zh_1.txt").read_text("utf-8").strip().split("\n\n")
    documents += [text.split("\n") for text in news]
    random.Random(2).shuffle(documents)
    for name, part in (("held_out", documents[::100]), ("train", documents)):
        kept = part if name == "held_out" else [d for i, d in enumerate(part) if i % 100]
        write(work / f"{name}.txt", ["\n".join(document) + "\n" for document in kept if document])

    tokenizer = Tokenizer.from_file(chinese / "vocab.txt")
    counts = collections.Counter()
    for document in documents:
        counts.update(id for text in document for id in tokenizer.encode(text))
    write(
        work / "vocab.txt",
        [
            token
            for id, token in enumerate(tokenizer.vocabulary())
            if token in _SPECIAL or counts[id] >= 3 or _ASCII.fullmatch(token)
        ],
    )


def distinct_reviews(path: pathlib.Path) -> list[tuple[str, str]]:
    """Texts and categories in a random order; if texts are equal, only one is kept."""
    found = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            text = " ".join(row["review"].split())
            if len(key_of(text)) >= 5:
                found.setdefault(key_of(text), (text, row["cat"]))
    rows = [found[key] for key in sorted(found)]
    random.Random(1).shuffle(rows)
    return rows


def rows_of(path: pathlib.Path) -> list[str]:
    """The texts of ChnSentiCorp."""
    lines = path.read_text("utf-8").strip().split("\n")[1:]
    return [" ".join(line.partition("\t")[2].split()) for line in lines]


def key_of(text: str) -> str:
    """The letters and digits of a text, which are the same for texts that count as equal."""
    return re.sub(r"[\W_]", "", unicodedata.normalize("NFKC", text)).lower()


def sentences(text: str) -> list[str]:
    """The sentences of a text."""
    return [part.strip() for part in _SENTENCE.findall(text) if part.strip()]


def write(path: pathlib.Path, lines: list[str]) -> None:
    """Writes lines."""
    files.write_bytes(str(path), ("\n".join(lines) + "\n").encode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("chinese", "msra", "work"):
        parser.add_argument(name, type=pathlib.Path)
    main(**vars(parser.parse_args()))
