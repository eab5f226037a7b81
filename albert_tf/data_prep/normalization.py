"""The normalization of a new SentencePiece model whose text has invisible characters inside words.

The rules of the released model, which SentencePiece calls nmt_nfkc, make blanks of some of these characters and tokens
of the others. So a Persian word with the joiner U+200C becomes two words, and a word with a soft hyphen has other
tokens than the word without it. The rules here keep the joiners, with which Persian, Sinhala, Hindi, Malayalam, Bengali
and others spell words, and remove what only says how a line is broken or in which direction it is written.

U+200B stays a blank, because it separates words in Thai, Khmer and other languages that write without blanks.
"""

import re
import struct

import numpy as np
import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from albert_tf.text import normalization_rules

RELEASED_NAME = "nmt_nfkc"
NAME = "nmt_nfkc_joiners"  # other programs look for "nfkc" in it

JOINERS = "\u200c\u200d"
# The soft hyphen; marks of direction; the word joiner, and operators of formulas; embedded directions, of which some
# characters are obsolete; the byte-order mark.
_REMOVED_RANGES = (
    (0x00AD, 0x00AD),
    (0x061C, 0x061C),
    (0x200E, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x2064),
    (0x2066, 0x206F),
    (0xFEFF, 0xFEFF),
)
REMOVED = "".join(chr(code) for first, last in _REMOVED_RANGES for code in range(first, last + 1))

# A text without these characters has the same tokens by either rules; nmt_nfkc, too, keeps U+200D.
_NEEDS_RULES = re.compile(f"[{REMOVED}\u200c]")

# Units of the trie in the table of a model (darts-clone, darts.h): where the fields of a unit are.
_LABEL_BITS = 0x800000FF
_HAS_LEAF_BIT = 1 << 8
_VALUE_BITS = 0x7FFFFFFF
_PARENTS_AT_A_TIME = 4096  # limits the memory of a step to some 30 MB


def needs_rules(text: str) -> bool:
    """Whether a text has characters that the rules of the released model would make blanks or tokens of."""
    return not text.isascii() and _NEEDS_RULES.search(text) is not None


def normalized(text: str) -> str:
    """A text by the rules here; not for words with white space, of which it may remove some."""
    parts = re.split(f"([{JOINERS}])", text.translate(dict.fromkeys(map(ord, REMOVED))))
    normalizer = sentencepiece.SentencePieceNormalizer(rule_name=RELEASED_NAME)
    return "".join(part if part in JOINERS else normalizer.normalize(part) for part in parts)


def rules_table() -> bytes:
    """The rules as a file for SentencePiece: in each line, code points, a tab, and the code points in their place."""
    table = normalization_rules.compiled(normalization_rule_name=RELEASED_NAME)
    rules = _rules_of(table)
    for joiner in JOINERS:
        rules.pop(joiner, None)  # a character without a rule stays
    rules |= dict.fromkeys(REMOVED, "")
    return normalization_rules.lines_of(sorted(rules.items())).encode()


def named(model_proto: bytes) -> bytes:
    """A model that was trained with the rules, with their name instead of the path of a temporary file."""
    model = ModelProto.FromString(model_proto)
    model.normalizer_spec.name = NAME
    model.normalizer_spec.ClearField("normalization_rule_tsv")
    return model.SerializeToString()


def _rules_of(table: bytes) -> dict[str, str]:
    """The rules in a compiled table: texts, and what replaces them.

    The table is the size of a trie, the trie, and the replacing texts with a zero byte after each. Source:
    normalizer.cc of SentencePiece (`DecodePrecompiledCharsMap`); darts.h of darts-clone (`DoubleArrayUnit`).
    """
    (size,) = struct.unpack_from("<I", table)
    trie = np.frombuffer(table, "<u4", size // 4, offset=4).astype(np.int64)
    texts = table[4 + size :]
    labels = np.arange(1, 256)
    rules = {}

    # Nodes of the trie: the bytes on the way to a node, and where its children begin.
    keys = [b""]
    bases = _child_bases(trie, np.zeros(1, np.int64))
    while keys:
        next_keys: list[bytes] = []
        next_bases: list[np.ndarray] = []
        for first in range(0, len(keys), _PARENTS_AT_A_TIME):
            # [4096, 255]: the place of each possible child; it is one if its unit has the label by which it was found.
            places = bases[first : first + _PARENTS_AT_A_TIME, None] ^ labels
            units = trie[np.minimum(places, len(trie) - 1)]
            is_child = (places < len(trie)) & ((units & _LABEL_BITS) == labels)
            parents, columns = np.nonzero(is_child)
            children = places[parents, columns]
            child_bases = _child_bases(trie, children)
            child_keys = [
                keys[first + parent] + bytes([label])
                for parent, label in zip(parents.tolist(), labels[columns].tolist(), strict=True)
            ]

            # A text ends at a child with a leaf, whose value is the place of the replacing text.
            has_leaf = (trie[children] & _HAS_LEAF_BIT) != 0
            values = np.where(has_leaf, trie[np.where(has_leaf, child_bases, 0)] & _VALUE_BITS, -1)
            for key, value in zip(child_keys, values.tolist(), strict=True):
                if value >= 0:
                    replacement = texts[value : texts.index(b"\0", value)]
                    rules[key.decode()] = replacement.decode()
            next_keys += child_keys
            next_bases.append(child_bases)
        keys = next_keys
        bases = np.concatenate(next_bases)
    return rules


def _child_bases(trie: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Where the children of nodes begin: the exclusive or of a base and a label is a child's place."""
    units = trie[nodes]
    return nodes ^ ((units >> 10) << ((units & (1 << 9)) >> 6))
