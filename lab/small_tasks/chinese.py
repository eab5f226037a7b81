"""Chinese text for pretraining, its vocabulary, and reviews with categories (docs/results/small_models.md).

    python -m lab.small_tasks.chinese --data_dir=data --output_dir=zh

The program writes train.txt and held_out.txt, one sentence per line, and vocab.txt: the tokens of the released Chinese
vocabulary that occur at least three times in the text, and ASCII. The text contains no text of a development file of
reviews, and no text that differs from such a text only in punctuation.
"""

import collections
import csv
import dataclasses
import pathlib
import random
import re
import unicodedata

from albert_tf import Tokenizer
from albert_tf.core import files, flags
from albert_tf.core.settings import Settings, setting

DEV, TRAIN = 2000, 6000  # reviews
_SENTENCES_OF_DOCUMENT = 10  # for files that contain only sentences
_SENTENCE = re.compile(r"[^。！？!?；;…]+[。！？!?；;…~]*|[。！？!?；;…]+")
_SPECIAL = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
_ASCII = re.compile(r"(##)?[\x21-\x7e]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChineseSettings(Settings):
    """Where the data is, and where the text is written."""

    data_dir: str = setting(
        "", "Folder with chinese/ and tagging/msra_zh/.", required=True, input_path=True
    )
    output_dir: str = setting("", "Folder to write to.", required=True)


def main(settings: ChineseSettings) -> None:
    """Writes the text and the vocabulary."""
    chinese, output = pathlib.Path(settings.data_dir, "chinese"), settings.output_dir
    documents = _documents(chinese, pathlib.Path(settings.data_dir, "tagging", "msra_zh"))
    held_out, train = documents[::100], [d for i, d in enumerate(documents) if i % 100]
    for name, part in (("held_out", held_out), ("train", train)):
        lines = ["\n".join(document) + "\n" for document in part if document]
        _write(f"{output}/{name}.txt", lines)
    tokenizer = Tokenizer.from_file(chinese / "vocab.txt")
    counts: collections.Counter[int] = collections.Counter()
    for document in documents:
        counts.update(id for text in document for id in tokenizer.encode(text))
    vocabulary = [
        token
        for id, token in enumerate(tokenizer.vocabulary())
        if token in _SPECIAL or counts[id] >= 3 or _ASCII.fullmatch(token)
    ]
    _write(f"{output}/vocab.txt", vocabulary)


def shopping_parts(path: pathlib.Path) -> dict[str, list[tuple[str, str]]]:
    """Reviews with their categories, for development and training."""
    reviews = _distinct_reviews(path)
    return {"dev": reviews[:DEV], "train": reviews[DEV : DEV + TRAIN]}


def _documents(chinese: pathlib.Path, msra: pathlib.Path) -> list[list[str]]:
    """The sentences of each document, in a random order."""
    reviews = _distinct_reviews(chinese / "online_shopping_10_cats.csv")
    sentiments = {
        name: _texts(chinese / "ChnSentiCorp" / f"{name}.tsv") for name in ("train", "dev")
    }
    held_out = {_key(text) for text in sentiments["dev"]}
    known = {_key(text) for text, _ in reviews}
    texts = [text for text, _ in reviews[DEV:]]
    texts += [text for text in sentiments["train"] if _key(text) not in known]
    documents = [_sentences(text) for text in texts if _key(text) not in held_out]
    tagged = (msra / "train.conll").read_text("utf-8").strip().split("\n\n")
    tagged = ["".join(line.partition("\t")[0] for line in text.split("\n")) for text in tagged]
    for start in range(0, len(tagged), _SENTENCES_OF_DOCUMENT):
        group = tagged[start : start + _SENTENCES_OF_DOCUMENT]
        documents.append([part for text in group for part in _sentences(text)])
    news = (chinese / "news_zh_1.txt").read_text("utf-8").strip().split("\n\n")
    documents += [text.split("\n") for text in news]
    random.Random(2).shuffle(documents)
    return documents


def _distinct_reviews(path: pathlib.Path) -> list[tuple[str, str]]:
    """Texts and categories in a random order; if texts are equal, only one is kept."""
    found: dict[str, tuple[str, str]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            text = " ".join(row["review"].split())
            if len(_key(text)) >= 5:
                found.setdefault(_key(text), (text, row["cat"]))
    rows = [found[key] for key in sorted(found)]
    random.Random(1).shuffle(rows)
    return rows


def _texts(path: pathlib.Path) -> list[str]:
    lines = path.read_text("utf-8").strip().split("\n")[1:]
    return [" ".join(line.partition("\t")[2].split()) for line in lines]


def _key(text: str) -> str:
    """The letters and digits of a text, which are the same for texts that count as equal."""
    return re.sub(r"[\W_]", "", unicodedata.normalize("NFKC", text)).lower()


def _sentences(text: str) -> list[str]:
    return [part.strip() for part in _SENTENCE.findall(text) if part.strip()]


def _write(path: str, lines: list[str]) -> None:
    files.write_bytes(path, ("\n".join(lines) + "\n").encode())


if __name__ == "__main__":
    flags.run(main, ChineseSettings, description=__doc__)
