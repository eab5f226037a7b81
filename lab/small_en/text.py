r"""Cleans Wikipedia pages and public-domain books; writes one document on each line, as JSON.

    python -m lab.small_en.text --data_dir=data/text --output_dir=work/text

--data_dir contains books/*.txt and gutenberg/*.txt, with hard-wrapped lines and a blank line between paragraphs, and
wikipedia*/wiki_*, in the format of WikiExtractor. Tables of contents, licenses, notes of transcribers, headings and
stubs are left out. Books are cut into parts of about 3,000 words.
"""

import dataclasses
import html
import json
import pathlib
import re
from collections.abc import Iterator

from albert_tf.core import files, flags
from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings, setting

PART_WORDS = 3000
STUB_WORDS = 40
_UNWANTED = re.compile(
    r"gutenberg|e-?text|transcriber|proofread|\[illustration|copyright|all rights reserved|printed by|ascii|www\.|http"
    r"|publisher",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?:;,—-][\"'”’)_\]]*$")
_NOTE = re.compile(r"\[(?:footnote|illustration|\d+|[a-z])[^\]]*\]", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSettings(Settings):
    """Where the text is, and where the documents are written."""

    data_dir: str = setting(
        "", "Folder with books/, gutenberg/ and wikipedia*/.", required=True, input_path=True
    )
    output_dir: str = setting("", "Folder for books.jsonl and wikipedia.jsonl.", required=True)


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


def parts_of_book(text: str) -> Iterator[str]:
    """The prose of a book in parts of about `PART_WORDS` words, with a paragraph on each line."""
    text = _NOTE.sub("", text.replace("\r\n", "\n")).replace("_", "").replace("--", " - ")
    paragraphs = (" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text))
    part: list[str] = []
    num_words = 0
    for paragraph in filter(is_prose, paragraphs):
        part.append(paragraph)
        num_words += len(paragraph.split())
        if num_words >= PART_WORDS:
            yield "\n".join(part)
            part, num_words = [], 0
    if num_words > PART_WORDS / 10:
        yield "\n".join(part)


def pages_of(text: str) -> Iterator[str]:
    """The pages of a file of WikiExtractor, with a paragraph on each line."""
    for page in re.findall(r"<doc [^>]*>\n(.*?)</doc>", text, re.DOTALL):
        _title, _, body = page.partition("\n")
        lines = [
            html.unescape(line).replace("()", "").replace("  ", " ") for line in body.split("\n")
        ]
        lines = [line for line in lines if len(line.split()) >= 5 and _SENTENCE_END.search(line)]
        if sum(len(line.split()) for line in lines) > STUB_WORDS:
            yield "\n".join(lines)


def _decoded(path: pathlib.Path) -> str:
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")


def main(settings: TextSettings) -> None:
    """Writes each distinct document once.

    Raises:
      UserError: --data_dir contains no file of either kind.
    """
    folder, seen = pathlib.Path(settings.data_dir), set()
    books = [*sorted(folder.glob("books/*.txt")), *sorted(folder.glob("gutenberg/*.txt"))]
    pages = sorted(folder.glob("wikipedia*/wiki_*"))
    if not books and not pages:
        raise UserError(
            f"{folder}: expected books/*.txt, gutenberg/*.txt or wikipedia*/wiki_*, found none; change --data_dir"
        )
    sources = {"books": (books, parts_of_book), "wikipedia": (pages, pages_of)}
    for name, (paths, documents_of) in sources.items():
        documents = [document for path in paths for document in documents_of(_decoded(path))]
        documents = [document for document in dict.fromkeys(documents) if document not in seen]
        seen.update(documents)
        lines = [json.dumps({"text": document}) + "\n" for document in documents]
        files.write_bytes(f"{settings.output_dir}/{name}.jsonl", "".join(lines).encode())
        print(f"{name}: {len(documents):,} documents, {sum(map(len, documents)) / 1e6:.1f} MB")


if __name__ == "__main__":
    flags.run(main, TextSettings, description=__doc__)
