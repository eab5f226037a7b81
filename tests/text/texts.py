"""Texts and models with which all tokenizers are tested: in Python, inside a graph, and by tables of words."""

import json
import pathlib
import unicodedata
from collections.abc import Iterator

from tests.helpers import train_spm

USER_SYMBOLS = ["(", ")", '"', "-", ".", "–", "£", "€"]

LINES = [
    "The cat sat on the mat.",
    "",
    "   \t \n ",
    "1,000 and 12, then 1999, or 5,",
    "12,345,678, x1, 7, 77,",
    "Ünïcödé Ｃａｆé naïve Zürich",
    "cafe\u0301, e\u0301\u0302t",
    "\u0301leading accent",
    "\u0301 \u0302 words of accents \u0303",
    "´ a ´b",  # NFKD makes spaces of these
    "[CLS] a cat [SEP] [MASK] <pad> <unk>",
    "tabs\tand\u00a0no-break\u3000ideographic\u2028spaces\u001cand\u0085more",
    "emoji 😀 👩‍👩‍👧, 🇩🇪 5,",
    "中文字符 12, 日本語 한국어",
    "ﬁnd the ﬂag ½ ⅓ … ™",
    "Straße İstanbul ıI ΟΔΟΣ ΣΑΣ. ǅ",
    "²³, x², ①②, ٣٤, ٣,",
    "zero\u200bwidth soft\u00adhyphen",
    "▁ a▁b ▁▁5,",
    "NUL \u0000 ΑΣ\u0000Β inside",
    '(brackets) "quotes" - dash – £5, €7,',
    "ﬁ" * 30,
    "  two  spaces\tand\x1ca separator\x0bor\x0ctwo ",
    "12,345,678, x1, 7, 77, 6666666 66 666,",
    "´ a ´b, half\u00a0space",
    "中文 and the cat – on, the – mat.",
    "a NUL \x00 and \x01 bells \x07",
    "a\x01the",
    "~{|}~ the `cat` ''sat'' $5 ^_^",
    "x" * 47 + " " + "y" * 48 + " " + "cat" * 40,
    "the cat sat. " * 100,
]


def assigned_characters() -> list[str]:
    """All characters that this Python's Unicode tables know, up to U+2FFFE."""
    codes = [*range(0xD800), *range(0xE000, 0x2FFFF)]
    return [chr(code) for code in codes if unicodedata.category(chr(code)) != "Cn"]


def corpus() -> Iterator[str]:
    """Lines with enough different made-up words for a unigram model to learn from."""
    syllables = ["ca", "the", "ma", "sat", "on", "fi", "n", "st", "ro", "a", "li", "x", "e"]
    for line in range(600):
        words = [syllables[line * k % 13] + syllables[(line // 7 + k) % 13] for k in range(1, 8)]
        numbers = f"in {1900 + line % 130}, and 12, then 1999, or 1,{line % 7}00,"
        end = f"({line}) x{line % 10}, é straße café defghijklmnopqrstuvwxyz<>[]/'"
        yield f"{'5, x7, ' * 3}the cat sat on the mat, {numbers} {' '.join(words)} {end}"


def train(path, sentences=None, **changes):
    settings = {"user_defined_symbols": USER_SYMBOLS, "vocab_size": 190, "hard_vocab_limit": False}
    return train_spm(path, sentences or corpus(), **settings | changes)


def read_real_lines(folder: pathlib.Path) -> list[str]:
    """2,000 lines, evenly spread over several kinds of text."""
    files = sorted(folder.glob("text/*/*")) + sorted(folder.glob("glue/*/*.tsv"))
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in files]
    lines = [line for text in texts for line in text.splitlines()]
    squad = json.loads((folder / "squad" / "dev-v1.1.json").read_text(encoding="utf-8"))
    lines += [part["context"] for article in squad["data"] for part in article["paragraphs"]]
    assert len(lines) > 2000
    return lines[:: len(lines) // 2000]


def train_with_digits(folder, model_type: str) -> str:
    """A small model; the one of type BPE surely has tokens that end in a digit and a comma."""
    return train(
        folder / "spiece.model",
        model_type=model_type,
        split_by_number=False,
        split_by_unicode_script=False,
    )


CHINESE_LINES = [
    "最后的南京老城该往何处去 城市化时代呼唤文化自觉",
    "【概要】80后学者姚远出版《城市的自觉》一书，1981年出生于南京。",
    "我喜欢 unaffable 的 Café，价格￥1,000.50元！",
    "酒店\u200b很好\ufeff，\ue000帕\ue001斯帕；iPhone6s手机",
    "豈更 㐀 𠀀 𪜀 々〆 ーカタカナ ひらがな 한국어 ㈱",
    "it's re-opened; 'quotes' «guillemets» … — ¡hola! ؟ ׃ ॥",
]


def write_vocabulary(path: pathlib.Path) -> str:
    """Writes a small WordPiece vocabulary of English and Chinese with the oddities of real ones; returns its path."""
    special = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    odd = ["\u2028", "", "the", "the", "##\u2028", "two words", "  cat\r", "##", "[unused1]"]
    text = "".join([*LINES, *CHINESE_LINES])
    text = unicodedata.normalize("NFD", text.lower()) + text + "abcdefghijklmnopqrstuvwxyz"
    characters = sorted({char for char in text if not char.isspace() and char not in "斯ŞX\ue000"})
    pieces = ["cat", "un", "##aff", "##able", "caf", "##e", "##at", "19", "##99", "##ing"]
    within = [f"##{char}" for char in characters if char.isalnum()]
    lines = [*special, *odd, *characters, *pieces, *within]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
    return str(path)


def read_mixed_lines(folder: pathlib.Path, number: int) -> list[str]:
    """Real lines, half of them English, half Chinese reviews and news."""
    english = [
        line
        for file in sorted((folder / "text" / "wikipedia").glob("wiki_*"))
        for line in file.read_text(encoding="utf-8").split("\n")
        if line.strip()
    ]
    chinese = [
        line
        for name in ("news_zh_1.txt", "online_shopping_10_cats.csv")
        for line in (folder / "chinese" / name).read_text(encoding="utf-8").split("\n")
        if line.strip()
    ]
    assert min(len(english), len(chinese)) >= number // 2
    return [
        line
        for lines in (english, chinese)
        for line in lines[:: len(lines) // (number // 2)][: number // 2]
    ]
