"""Made-up texts of many scripts, with what tokenizers get wrong."""

import random

# First and last code point of scripts: Latin with and without accents, Greek, Cyrillic, Hebrew, Arabic, Indic scripts,
# Thai, parts of Korean syllables and whole ones, symbols, kana, ideographs below and above U+FFFF, emoji, tags.
SCRIPTS = [
    (0x20, 0x7E),
    (0x20, 0x7E),
    (0xA0, 0x24F),
    (0x300, 0x36F),
    (0x370, 0x3FF),
    (0x400, 0x4FF),
    (0x590, 0x5FF),
    (0x600, 0x6FF),
    (0x900, 0xCFF),
    (0xE00, 0xEFF),
    (0x1100, 0x11FF),
    (0x1E00, 0x20FF),
    (0x2000, 0x206F),
    (0x2100, 0x2BFF),
    (0x3000, 0x33FF),
    (0x4E00, 0x9FFE),
    (0xAC00, 0xD7A3),
    (0xF900, 0xFAFF),
    (0xFE00, 0xFFFF),
    (0x1D100, 0x1D1FF),
    (0x1D400, 0x1D7FF),
    (0x1F300, 0x1F9FF),
    (0x20000, 0x203FF),
    (0xE0000, 0xE01FF),
]
# The sigma at the end of a word, joiners, letters that become several, marks in another order than the usual one, half
# a character, numbers with commas, special tokens.
TRAPS = [
    "Σ",
    "ΟΔΟΣ",
    "ΑΣ'",
    "Σ.Σ",
    "a\u200db",
    "\u200d",
    "\U0001f468\u200d\U0001f469",
    "𠀋",
    "İ",
    "ß",
    "ﬁ",
    "½",
    "´",
    "e\u0301\u0323",
    "\u0301",
    "\u302e\u302f\u0301",
    "각",
    "한국어",
    "\ud800",
    "ＡＢ",
    "1,",
    "1999,",
    "٣,",
    "x1,2,",
    "[SEP]",
    "[MASK]",
    "``",
    "don't",
    "café",
    "\t",
    "\u00a0",
    "\u3000",
]


def made_up_texts(number: int, seed: int = 1) -> list[str]:
    """Texts of parts of every script and of the traps."""
    rng = random.Random(seed)
    texts = []
    for _ in range(number):
        parts = []
        for _ in range(rng.randint(0, 9)):
            first, last = rng.choice(SCRIPTS)
            letters = [chr(rng.randint(first, last)) for _ in range(rng.randint(1, 8))]
            parts.append(rng.choice(TRAPS) if rng.random() < 0.4 else "".join(letters))
            parts.append(rng.choice(["", "", " ", " ", "  ", "\n", ", "]))
        texts.append("".join(parts))
    return texts
