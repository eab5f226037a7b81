"""Tokenizes many lines by compiled loops: the ids of a SentencePiece tokenizer, in a quarter of its time.

SentencePiece takes longer for a line than all that follows: it normalizes one character after the other, and makes
objects of the tokens of each line. Here the bytes of all lines are one array. The search for the best tokens is that of
SentencePiece, step by step and in the same precision, because two divisions of a word often have nearly equal scores.

Lines that a rule of normalization changes, which are rare after cleaning, are left to the tokenizer; so are all lines
if the vocabulary is of another kind (`_tables_of`), or if the installed SentencePiece finds other tokens in made-up
lines than the compiled loops, as another version might.

Source: unigram_model.cc (`EncodeOptimized`) and normalizer.cc (`NormalizePrefix`) of SentencePiece 0.2.
"""

import functools
from typing import NamedTuple

import numba
import numpy as np
import sentencepiece
from absl import logging
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from albert_tf.text.tokenizer import SentencePieceTokenizer, Tokenizer
from albert_tf.text.word_starts import MARKER

_UNKNOWN_PENALTY = np.float32(10)
_USER_DEFINED_PENALTY = 0.1
_MISREAD = "\0"  # in place of a line that is left to the tokenizer
# The tokenizer encodes only a part of a long run of unknown characters, which can change how scores are rounded.
_LONGEST_WITH_UNKNOWN = 1000  # bytes
# Made-up lines that the compiled loops and SentencePiece tokenize before any other.
_CHECKED_LINES = 200
_CHECKED_TOKENS = 30  # of a line
_CHECKED_CHARACTERS = ("\ue000", " ", "Ａ", "½")


class _Tables(NamedTuple):
    """A vocabulary as arrays; in its tokens, the marker is a blank."""

    trie: np.ndarray  # uint64 [units], the tokens (`_trie_of`)
    scores: np.ndarray  # float64 [V]
    unknown_score: np.float32  # of a character
    unknown_id: int  # -1 if lines with unknown characters are left to the tokenizer
    # What the digit-comma rule puts in place of tokens, mostly the token itself: the ids in place of the first token,
    # of the second, and so on; and where those of each begin, and the end.
    new_ids: np.ndarray  # int32 [all of these ids]
    new_offsets: np.ndarray  # int64 [V + 1]
    # The trie of the texts that normalization replaces, uint32 [units] (darts-clone).
    rules: np.ndarray
    lower_case: bool


class CompiledTokenizer:
    """Encodes many lines as a tokenizer does."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer

    @functools.cached_property
    def _tables(self) -> _Tables | None:
        """Made when they are first needed, in the process that needs them: a run that is complete needs none."""
        tables = _tables_of(self._tokenizer)
        if tables is None or self._agrees(tables):
            return tables
        logging.warning(
            "SentencePiece %s tokenizes otherwise than the compiled loops, so it is used, and takes longer",
            sentencepiece.__version__,
        )
        return None

    @property
    def is_compiled(self) -> bool:
        """Whether the vocabulary is of the kind that the compiled loops know."""
        return self._tables is not None

    def encode(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all texts, one text after the other, int32 [tokens], and how many each has, int64 [texts]."""
        if self._tables is None:
            ids_of_texts = self._tokenizer.encode_batch(texts)
            return _joined(ids_of_texts), np.array([*map(len, ids_of_texts)], np.int64)
        return self._encode(texts, self._tables)

    def _encode(self, texts: list[str], tables: _Tables) -> tuple[np.ndarray, np.ndarray]:
        lines = [text if text.isascii() else self._cleaned(text) for text in texts]
        encoded = [line.encode() for line in lines]
        ends = np.cumsum([*map(len, encoded)], dtype=np.int64)
        data = np.frombuffer(b"".join(encoded), np.uint8)
        compiled_ids, counts = _encode_lines(data, ends, tables)

        of_tokenizer = np.flatnonzero(counts < 0)
        if not of_tokenizer.size:
            return compiled_ids, counts

        # Counts [2, -1, 1], of which the second text is left to the tokenizer and has 3 tokens -> [2, 3, 1]; of the
        # 6 ids, the first 2 and the last are compiled.
        ids_of_tokenizer = self._tokenizer.encode_batch([texts[index] for index in of_tokenizer])
        counts[of_tokenizer] = [*map(len, ids_of_tokenizer)]
        is_of_tokenizer = np.repeat(np.isin(np.arange(counts.size), of_tokenizer), counts)
        ids = np.empty(is_of_tokenizer.size, np.int32)
        ids[~is_of_tokenizer] = compiled_ids
        ids[is_of_tokenizer] = _joined(ids_of_tokenizer)
        return ids, counts

    def _agrees(self, tables: _Tables) -> bool:
        """Whether lines of random tokens, with some unknown ones, have the ids of the tokenizer."""
        rng = np.random.default_rng(0)
        vocabulary = self._tokenizer.vocabulary()
        # Of some forty tokens, one is unknown, has a rule of normalization, or is a blank.
        others = _CHECKED_CHARACTERS * (1 + len(vocabulary) // (40 * len(_CHECKED_CHARACTERS)))
        tokens = np.array([*vocabulary, *others], object)
        lines = rng.choice(tokens, [_CHECKED_LINES, _CHECKED_TOKENS])
        texts = ["".join(line).replace(MARKER, " ") for line in lines]
        ids, counts = self._encode(texts, tables)
        expected = self._tokenizer.encode_batch(texts)
        has_same_counts = counts.tolist() == [*map(len, expected)]
        return has_same_counts and ids.tolist() == _joined(expected).tolist()

    def _cleaned(self, text: str) -> str:
        """A text that is not ASCII after cleaning, or `_MISREAD` if the compiled loops would misread it."""
        cleaned = self._tokenizer.clean(text)
        # Cleaning makes a blank of some characters, such as "´"; and the loops know the marker as a blank.
        has_extra_blank = "  " in cleaned or cleaned.startswith(" ") or cleaned.endswith(" ")
        return _MISREAD if has_extra_blank or MARKER in cleaned else cleaned


def _joined(ids_of_texts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, np.int32), *ids_of_texts])


# --- A vocabulary as arrays.


def _tables_of(tokenizer: Tokenizer) -> _Tables | None:
    """The vocabulary of a tokenizer as arrays; None if the compiled loops do not know its kind."""
    if not isinstance(tokenizer, SentencePieceTokenizer) or tokenizer.added_ids:
        return None
    model = tokenizer.model()
    trainer = model.trainer_spec
    normalizer = model.normalizer_spec
    kinds = ModelProto.SentencePiece
    has_usual_blanks = (
        normalizer.add_dummy_prefix
        and normalizer.remove_extra_whitespaces
        and normalizer.escape_whitespaces
        and not trainer.treat_whitespace_as_suffix
    )
    if trainer.model_type != TrainerSpec.UNIGRAM or not has_usual_blanks:
        return None

    normal_scores = [piece.score for piece in model.pieces if piece.type == kinds.NORMAL]
    if not normal_scores:
        return None
    # SentencePiece begins with the smallest positive number, so that a negative score is never the largest.
    largest_score = np.float32(max([np.finfo(np.float32).tiny, *normal_scores]))
    scores = np.zeros(len(model.pieces))
    tokens_in_texts = []  # as bytes, with their ids
    for id, piece in enumerate(model.pieces):
        if " " in piece.piece or "\0" in piece.piece:
            return None
        text = piece.piece.replace(MARKER, " ").encode()
        if piece.type == kinds.USER_DEFINED:
            if MARKER in piece.piece:
                return None
            # A product of float32 numbers, and a difference of float64 numbers, as there.
            scores[id] = float(np.float32(len(text)) * largest_score) - _USER_DEFINED_PENALTY
        else:
            scores[id] = piece.score
        if piece.type in (kinds.NORMAL, kinds.USER_DEFINED):
            tokens_in_texts.append((text, id))

    trie = _trie_of(tokens_in_texts)
    if not trie.size:
        return None
    replacements = tokenizer.replacements()
    has_one_unknown_token = not trainer.byte_fallback and not tokenizer.unknown_may_end_in_comma
    return _Tables(
        trie=trie,
        scores=scores,
        unknown_score=np.float32(min(normal_scores)) - _UNKNOWN_PENALTY,
        unknown_id=tokenizer.unk_id if has_one_unknown_token else -1,
        new_ids=np.array([id for new_ids in replacements for id in new_ids], np.int32),
        new_offsets=np.cumsum([0, *map(len, replacements)]),
        rules=_trie_of_rules(normalizer.precompiled_charsmap),
        lower_case=tokenizer.do_lower_case,
    )


def _trie_of_rules(table: bytes) -> np.ndarray:
    """The trie in a compiled table of rules: its size, the trie, and the texts that replace others."""
    size = int.from_bytes(table[:4], "little")
    return np.frombuffer(table[4 : 4 + size], "<u4").astype(np.uint32)


def _trie_of(tokens: list[tuple[bytes, int]]) -> np.ndarray:
    """The trie of tokens, given with their ids, as an array of units, uint64.

    A unit is a node of the trie, the first one its root. It has the id of the token that ends there plus 1, or 0 (32
    bits); where its children begin (24 bits); and the byte that leads to it (8 bits). The child for a byte is as many
    units after the beginning, if it has this byte. So a step takes a single access to memory.

    Of the tokens "a" and "ab", "a" is the child of the root for 97, and has an id and a beginning; "ab" is the child of
    this unit for 98, and has an id and no children.
    """
    tokens = sorted(tokens)
    data = np.frombuffer(b"".join(token for token, _ in tokens), np.uint8)
    ends = np.cumsum([len(token) for token, _ in tokens], dtype=np.int64)
    return _fill_trie(data, ends, np.array([id for _, id in tokens], np.int32))


_BITS_OF_LABEL = np.uint64(8)
_BITS_BEFORE_ID = np.uint64(32)
_LABEL_MASK = np.uint64(0xFF)
_BASE_MASK = np.uint64(0xFFFFFF)
_BYTES = 256
# At the end of the array, for children; more would save little memory and take longer.
_TRIED_UNITS = 64
_MOST_UNITS = 1 << 24  # which `_BASE_MASK` can tell apart


@numba.njit(cache=True)
def _fill_trie(data, ends, ids):
    """The trie of sorted tokens whose bytes in `data` end at `ends`; no unit if it is too large."""
    units = np.zeros(4 * data.size + 4 * _BYTES, np.uint64)
    is_free = np.ones(units.size, np.bool_)
    # Each node has another base, so the byte tells whose child a unit is.
    is_base = np.zeros(units.size, np.bool_)
    size = _BYTES  # of the array; before are only bases, and the root
    is_free[:size] = False

    # Nodes whose children are not placed yet: the tokens below a node, its depth, and its unit.
    pending = np.empty((data.size + 1, 4), np.int64)
    pending[0] = (0, ends.size, 0, 0)
    num_pending = 1
    first_tokens = np.empty(_BYTES + 1, np.int64)  # below each child, and the end
    labels = np.empty(_BYTES, np.int64)
    while num_pending:
        num_pending -= 1
        token, last_token, depth, unit = pending[num_pending]
        start = ends[token - 1] if token else 0
        if ends[token] - start == depth:
            units[unit] |= np.uint64(ids[token] + 1) << _BITS_BEFORE_ID
            token += 1

        num_children = 0
        while token < last_token:
            start = ends[token - 1] if token else 0
            label = data[start + depth]
            if not num_children or label != labels[num_children - 1]:
                labels[num_children] = label
                first_tokens[num_children] = token
                num_children += 1
            token += 1
        first_tokens[num_children] = last_token
        if not num_children:
            continue

        base = max(0, size - _TRIED_UNITS - labels[0])
        while is_base[base] or not is_free[base + labels[:num_children]].all():
            base += 1
        is_base[base] = True
        units[unit] |= np.uint64(base) << _BITS_OF_LABEL
        for child in range(num_children):
            child_unit = base + labels[child]
            units[child_unit] = labels[child]
            is_free[child_unit] = False
            size = max(size, child_unit + 1)
            pending[num_pending, 0] = first_tokens[child]
            pending[num_pending, 1] = first_tokens[child + 1]
            pending[num_pending, 2] = depth + 1
            pending[num_pending, 3] = child_unit
            num_pending += 1

        # The next node needs at most `_BYTES` places from `size` on, which are free; no base is there.
        if size + _BYTES > _MOST_UNITS:
            return units[:0].copy()
        if size + _BYTES > units.size:
            units = np.concatenate((units, np.zeros(units.size, np.uint64)))
            is_free = np.concatenate((is_free, np.ones(is_free.size, np.bool_)))
            is_base = np.concatenate((is_base, np.zeros(is_base.size, np.bool_)))
    return units[: size + _BYTES].copy()


# --- Lines -> ids.


@numba.njit(cache=True)
def _encode_lines(data, ends, tables):
    """The ids of lines, int32 [tokens], and their numbers, int64 [lines]: -1 for a line that is left to the tokenizer.

    `data` are the bytes of the lines, each of which ends at one of `ends`.
    """
    # A line has at most a token for each byte, and the marker before it.
    ids = np.empty(data.size + ends.size, np.int32)
    counts = np.empty(ends.size, np.int64)
    longest = 0
    start = 0
    for line in range(ends.size):
        longest = max(longest, ends[line] - start)
        start = ends[line]
    text = np.empty(longest + 2, np.uint8)
    best_scores = np.empty(longest + 2, np.float32)
    best_starts = np.empty(longest + 2, np.int64)
    best_ids = np.empty(longest + 2, np.int32)

    num_ids = 0
    start = 0
    for line in range(ends.size):
        size = _normalize(data[start : ends[line]], tables, text)
        start = ends[line]
        counts[line] = size
        if size > 0:
            _find_best(text[:size], tables, best_scores, best_starts, best_ids)
            counts[line] = _put_ids(size, tables, best_starts, best_ids, ids[num_ids:])
        if counts[line] > 0:
            num_ids += counts[line]
    return ids[:num_ids], counts


@numba.njit(cache=True)
def _normalize(line, tables, text):
    """Writes a line as its tokens spell it: each word in lower case after one blank; returns the number of bytes.

    -1 if a rule of normalization changes the line.
    """
    size = 0
    is_after_blank = True
    for byte in line:
        # The white space of str.split in ASCII.
        if byte == 32 or 9 <= byte <= 13 or 28 <= byte <= 31:
            is_after_blank = True
            continue
        if is_after_blank:
            text[size] = 32
            size += 1
            is_after_blank = False
        is_capital = 65 <= byte <= 90  # A to Z
        text[size] = byte + 32 if tables.lower_case and is_capital else byte
        size += 1

    for place in range(size):
        is_first_byte = text[place] & 0xC0 != 0x80
        if text[place] == 0 or (is_first_byte and _has_rule(text[place:size], tables.rules)):
            return -1
    return size


@numba.njit(cache=True)
def _has_rule(text, rules):
    """Whether a text begins with one that normalization replaces (darts.h of darts-clone, `commonPrefixSearch`)."""
    if not rules.size:
        return False
    unit = rules[0]
    place = _child_base(np.uint32(0), unit)
    for byte in text:
        place ^= np.uint32(byte)
        unit = rules[place]
        if unit & np.uint32(0x800000FF) != byte:
            return False
        if unit & np.uint32(0x100):  # a rule ends here
            return True
        place = _child_base(place, unit)
    return False


@numba.njit(cache=True)
def _child_base(place, unit):
    """Where the children of a unit begin."""
    shift = (unit & np.uint32(0x200)) >> np.uint32(6)
    return np.uint32(place ^ ((unit >> np.uint32(10)) << shift))


@numba.njit(cache=True)
def _find_best(text, tables, best_scores, best_starts, best_ids):
    """Sets, for each end of a token in a text, the score, start and id of the last token of the best ones up to there.

    The scores are rounded as SentencePiece does: sums in float64, kept in float32.
    """
    best_scores[0] = 0
    best_starts[: text.size + 1] = -1
    start = 0
    while start < text.size:
        score_before = best_scores[start]
        char_end = start + _char_length(text[start])
        has_char = False  # as a token
        unit = tables.trie[0]
        for end in range(start + 1, text.size + 1):
            label = np.uint64(text[end - 1])
            unit = tables.trie[(unit >> _BITS_OF_LABEL & _BASE_MASK) + label]
            if unit & _LABEL_MASK != label:
                break
            id = np.int64(unit >> _BITS_BEFORE_ID) - 1
            if id < 0:
                continue
            score = tables.scores[id] + np.float64(score_before)
            if best_starts[end] < 0 or score > np.float64(best_scores[end]):
                best_scores[end] = score
                best_starts[end] = start
                best_ids[end] = id
            has_char |= end == char_end
        if not has_char:
            unknown_score = np.float32(tables.unknown_score + score_before)
            if best_starts[char_end] < 0 or unknown_score > best_scores[char_end]:
                best_scores[char_end] = unknown_score
                best_starts[char_end] = start
                best_ids[char_end] = -1
        start = char_end


@numba.njit(cache=True)
def _char_length(first_byte):
    """The number of bytes of a character in UTF-8."""
    if first_byte < 0xC0:
        return 1
    if first_byte < 0xE0:
        return 2
    return 3 if first_byte < 0xF0 else 4


@numba.njit(cache=True)
def _put_ids(size, tables, best_starts, best_ids, ids):
    """Writes the ids of the best tokens; returns their number, or -1 if the line is left to the tokenizer."""
    count = 0
    end = size
    is_before_unknown = False
    while end > 0:
        id = best_ids[end]
        end = best_starts[end]
        if id < 0:
            if tables.unknown_id < 0 or size > _LONGEST_WITH_UNKNOWN:
                return -1
            # A run of unknown characters is one token.
            if not is_before_unknown:
                ids[count] = tables.unknown_id
                count += 1
            is_before_unknown = True
            continue
        is_before_unknown = False
        for index in range(tables.new_offsets[id + 1] - 1, tables.new_offsets[id] - 1, -1):
            ids[count] = tables.new_ids[index]
            count += 1
    # They were found from the last to the first.
    for index in range(count // 2):
        other = count - 1 - index
        ids[index], ids[other] = ids[other], ids[index]
    return count
