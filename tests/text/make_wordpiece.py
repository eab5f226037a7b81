"""Writes wordpiece_of_tokenizers.json: what the tokenizers library makes of texts, where its rules are the original's.

python -m tests.text.make_wordpiece     (needs tokenizers; the test that reads the file does not)
"""

import json
import pathlib
import tempfile

import tokenizers

from tests.text.texts import CHINESE_LINES, LINES, write_vocabulary

FILE = pathlib.Path(__file__).with_name("wordpiece_of_tokenizers.json")
# It drops private characters, lowers every sigma to the same letter, takes 101 characters for an unknown word, knows
# special tokens in text, and leaves characters without a trace out of all spans.
_DIFFERENT = ("y" * 48, "[CLS]", *"\ue000Σ\u0301\u200b\0\x01\x0b\x1c\xad")


def main() -> None:
    entries = []
    with tempfile.TemporaryDirectory() as folder:
        path = write_vocabulary(pathlib.Path(folder) / "vocab.txt")
        ids = {token: id for id, token in enumerate(unique_tokens(path))}
        for lower in (True, False):
            library = tokenizers.BertWordPieceTokenizer(ids, lowercase=lower)
            for text in [*LINES, *CHINESE_LINES]:
                if len(text) < 200 and not any(part in text for part in _DIFFERENT):
                    found = library.encode(text, add_special_tokens=False)
                    entry = {"text": text, "ids": found.ids, "offsets": found.offsets}
                    entries.append({"lower": lower, **entry})
    FILE.write_text("[\n" + ",\n".join(map(json.dumps, entries)) + "\n]\n")


def unique_tokens(path: str) -> list[str]:
    """The tokens of a vocabulary as the original numbers them; the library would number the lines."""
    lines = pathlib.Path(path).read_bytes().decode().removesuffix("\n").split("\n")
    return list(dict.fromkeys((line.split() or [" "])[0] for line in lines))


if __name__ == "__main__":
    main()
