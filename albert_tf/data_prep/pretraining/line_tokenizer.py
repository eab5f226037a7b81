"""Lines -> token ids, each distinct word tokenized once.

SentencePiece needs about a microsecond per word, and a corpus repeats the same words. No token crosses a word boundary,
so a word has the same tokens in every line. Here a table has the tokens of every word that occurred; a compiled loop
finds those of new words.

There is one exception: SentencePiece adds up the scores of a whole line in float32, so rounding errors, which depend on
the rest of the line, can decide between two segmentations of a word with equal scores. `Tokenizer` therefore tokenizes
a line itself if the line contains a word whose two best scores are close, a word with characters that are not printable
ASCII or not known to the model, or anything else that could change its ids. So every line gets the ids of `Tokenizer`
(`test_line_tokenizer.py`).

A WordPiece tokenizer already has its own table of words (`WordTokens`).
"""

import functools
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numba
import numpy as np

from albert_tf.text.tokenizer import MARKER, SentencePieceTokenizer, Tokenizer

_MARKER_BYTE = 0xFF  # represents the marker; never occurs in UTF-8
_UNSURE = -np.inf  # instead of a word's score

# As long as the sum of a line's scores is above this, adding a score in float32 has an error of at most 2^-14. A word
# has at most one token per byte, so the errors of two segmentations differ by less than the margin.
_LEAST_SCORE = -2048.0
_MAX_WORD_BYTES = 48
_LEAST_MARGIN = 0.01

_LINES_TOGETHER = 2000  # so that no more words than these are in memory besides the table
_MAX_WORDS = 1 << 16  # in the table, about 200 bytes each; a full table is emptied

# SentencePiece's score of a user-defined token, if no token has a score above 0 (`EncodeOptimized` in its
# unigram_model.cc).
_SCORE_OF_USER_DEFINED = -0.1

_NODE_BITS = (1 << 24) - 1
_SPREAD, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


class Vocabulary(NamedTuple):
    """The vocabulary as a tree of bytes; a hash table maps a node and a byte to the next node."""

    steps: np.ndarray  # int64 [slots], node (32 bits), byte (8), next node (24); -1 in empty slots
    ids: np.ndarray  # int32 [nodes], the token that ends in a node; -1 if none does
    scores: np.ndarray  # float64 [V]


class Rows(NamedTuple):
    """Rows of different lengths, one after the other."""

    values: np.ndarray  # int32 [values]
    lengths: np.ndarray  # int64 [rows]

    def select(self, rows: np.ndarray) -> "Rows":
        """Some of the rows, in the order given."""
        starts, lengths = np.cumsum(self.lengths) - self.lengths, self.lengths[rows]
        shifts = starts[rows] - (np.cumsum(lengths) - lengths)
        places = np.arange(lengths.sum()) + np.repeat(shifts, lengths)
        return Rows(self.values[places], lengths)


class LineTokenizer:
    """`Tokenizer.encode_batch` for a corpus.

    If the tokenizer's model is no unigram model with the usual treatment of white space, it tokenizes every line.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._forget()

    def __reduce__(self):
        # Sending the tables to another process takes longer than making them, and the process may not need them.
        return LineTokenizer, (self._tokenizer,)

    @property
    def vocab_size(self) -> int:
        """Number of tokens, V."""
        return self._tokenizer.vocab_size

    def encode(self, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all lines one after the other, int32 [ids], and their number in each line, int64 [lines]."""
        ids, lengths = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
        for start in range(0, max(1, len(lines)), _LINES_TOGETHER):  # no lines compile the loop
            ids_of_batch, lengths_of_batch = self._encode(lines[start : start + _LINES_TOGETHER])
            ids.append(ids_of_batch)
            lengths.append(lengths_of_batch)
        return np.concatenate(ids), np.concatenate(lengths)

    def _encode(self, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        if not self._tables:
            ids_of_lines = self._tokenizer.encode_batch(lines)
            lengths = np.array([*map(len, ids_of_lines)], np.int64)
            return np.concatenate([np.empty(0, np.int32), *ids_of_lines]), lengths
        words_of_lines = [self._tokenizer.clean(line).split() for line in lines]
        words = [word for words in words_of_lines for word in words]
        self._learn(words)
        numbers = np.fromiter(map(self._numbers.__getitem__, words), np.int64, len(words))
        line_of_word = np.repeat(np.arange(len(lines)), [*map(len, words_of_lines)])
        scores = np.bincount(line_of_word, self._scores[numbers], len(lines))
        is_sure = scores > _LEAST_SCORE
        in_sure = is_sure[line_of_word]
        ids, counts = self._words.select(numbers[in_sure])
        lengths = np.bincount(line_of_word[in_sure], counts, len(lines)).astype(np.int64)
        unsure = np.flatnonzero(~is_sure)
        between = np.split(ids, np.cumsum(lengths)[unsure])
        ids_of_unsure = self._tokenizer.encode_batch([lines[int(index)] for index in unsure])
        lengths[unsure] = list(map(len, ids_of_unsure))
        joined = [part for pair in zip(between, ids_of_unsure, strict=False) for part in pair]
        return np.concatenate([*joined, between[-1]]), lengths

    def _forget(self) -> None:
        """Empties the table of words."""
        self._numbers: dict[str, int] = {}
        self._words = Rows(np.empty(0, np.int32), np.empty(0, np.int64))
        self._scores = np.empty(0)  # float64 [words], sum over the tokens, or `_UNSURE`

    def _learn(self, words: Collection[str]) -> None:
        """Adds words to the table."""
        assert self._tables
        new = list(set(words).difference(self._numbers))
        if len(self._numbers) + len(new) > _MAX_WORDS:
            self._forget()
            new = list(set(words))
        plain, vocabulary, replacements = self._tables
        is_plain = [len(word) < _MAX_WORD_BYTES and plain.issuperset(word) for word in new]
        shown = [word if is_one else "" for word, is_one in zip(new, is_plain, strict=True)]
        marker = chr(_MARKER_BYTE)
        text = np.frombuffer((marker + marker.join(shown)).encode("latin-1"), np.uint8)
        ends = np.cumsum([len(word) + 1 for word in shown], dtype=np.int64)
        tokens, counts, scores = _segment_words(text, ends, vocabulary)
        scores[~np.array(is_plain, bool)] = _UNSURE
        ids, counts_of_tokens = replacements.select(tokens)
        counts = np.bincount(np.repeat(np.arange(len(new)), counts), counts_of_tokens, len(new))
        self._numbers.update(zip(new, itertools.count(len(self._numbers)), strict=False))
        self._words = Rows(
            np.concatenate([self._words.values, ids]),
            np.concatenate([self._words.lengths, counts.astype(np.int64)]),
        )
        self._scores = np.concatenate([self._scores, scores])

    @functools.cached_property
    def _tables(self) -> tuple[frozenset[str], Vocabulary, Rows] | None:
        """The characters of plain words, the vocabulary, and the ids after the digit-comma rule; None if unusual."""
        # Imported here because it imports protobuf.
        from sentencepiece import sentencepiece_model_pb2 as model_pb2

        tokenizer = self._tokenizer
        if not isinstance(tokenizer, SentencePieceTokenizer):
            return None
        model = model_pb2.ModelProto.FromString(tokenizer.content)
        trainer, normalizer = model.trainer_spec, model.normalizer_spec
        normal = model_pb2.ModelProto.SentencePiece.NORMAL
        user_defined = model_pb2.ModelProto.SentencePiece.USER_DEFINED
        is_usual = (
            trainer.model_type == model_pb2.TrainerSpec.UNIGRAM
            and not trainer.treat_whitespace_as_suffix
            and normalizer.add_dummy_prefix
            and normalizer.remove_extra_whitespaces
            and normalizer.escape_whitespaces
            and normalizer.name != "user_defined"  # whose rules may replace several characters
            and not any(MARKER in piece.piece[1:] for piece in model.pieces)
            and all(piece.score <= 0 for piece in model.pieces if piece.type == normal)
        )
        if not is_usual:
            return None
        ids = {
            piece.piece: id
            for id, piece in enumerate(model.pieces)
            if piece.type in (normal, user_defined) and piece.piece.replace(MARKER, "").isascii()
        }
        scores = [
            _SCORE_OF_USER_DEFINED if piece.type == user_defined else piece.score
            for piece in model.pieces
        ]
        printable = map(chr, range(ord("!"), 127))
        plain = frozenset(char for char in printable if tokenizer.normalize(char) == MARKER + char)
        replacements = tokenizer.replacement_table()
        vocabulary = Vocabulary(*_tree_of(ids), np.array(scores))
        return plain, vocabulary, Rows(replacements.ids, replacements.counts)


# --- The vocabulary as a tree ---


def _tree_of(ids: Mapping[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """The first two fields of `Vocabulary`."""
    texts = [token.encode().replace(MARKER.encode(), bytes([_MARKER_BYTE])) for token in ids]
    offsets = np.cumsum([0, *map(len, texts)])
    steps = np.full(1 << int(offsets[-1]).bit_length(), -1, np.int64)
    ids_of_nodes = np.full(offsets[-1] + 1, -1, np.int32)
    text = np.frombuffer(b"".join(texts), np.uint8)
    _grow_tree(text, offsets, np.array([*ids.values()], np.int32), steps, ids_of_nodes)
    return steps, ids_of_nodes


@numba.njit(cache=True)
def _grow_tree(text, offsets, ids, steps, ids_of_nodes):
    num_nodes = 1
    for token in range(ids.size):
        node = 0
        for byte in text[offsets[token] : offsets[token + 1]]:
            slot = _slot_of_step(steps, node, byte)
            if steps[slot] < 0:
                steps[slot] = (256 * np.int64(node) + byte << 24) + num_nodes
                num_nodes += 1
            node = steps[slot] & _NODE_BITS
        ids_of_nodes[node] = ids[token]


@numba.njit(cache=True)
def _slot_of_step(steps, node, byte):
    """The place in the hash table of the step from a node with a byte, or the empty slot where it would be."""
    key = 256 * np.int64(node) + np.int64(byte)
    slot = np.int64((np.uint64(key) * _SPREAD) >> _SHIFT) & (steps.size - 1)
    while steps[slot] >> 24 != key and steps[slot] >= 0:
        slot = (slot + 1) & (steps.size - 1)
    return slot


# --- Words that are not in the table ---


@numba.njit(cache=True)
def _segment_words(text, ends, vocabulary):
    """The tokens of words, which stand in a text one after the other; their number in each word; each word's score."""
    size = _MAX_WORD_BYTES + 1
    best, second = np.empty(size), np.empty(size)
    last_tokens, starts = np.empty(size, np.int32), np.empty(size, np.int32)
    tokens = np.empty(text.size, np.int32)
    counts, scores = np.zeros(ends.size, np.int64), np.full(ends.size, _UNSURE)
    total, word_start = 0, 0
    for number in range(ends.size):
        word = text[word_start : ends[number]]
        word_start = ends[number]
        if _find_best(word, vocabulary, best, second, last_tokens, starts):
            scores[number] = best[word.size]
            end = word.size
            while end > 0:
                counts[number] += 1
                end = starts[end]
            total += counts[number]
            end, place = word.size, total
            while end > 0:
                place -= 1
                tokens[place] = last_tokens[end]
                end = starts[end]
    return tokens[:total], counts, scores


@numba.njit(cache=True)
def _find_best(word, vocabulary, best, second, last_tokens, starts):
    """Finds the tokens with the greatest sum of scores; returns whether they are the tokens in every line.

    Args:
      best: the best score of the first n bytes, whose last token, in `last_tokens`, begins at `starts`.
      second: the best score of any other segmentation of the first n bytes.
    """
    size, steps = word.size, vocabulary.steps
    ids_of_nodes, scores = vocabulary.ids, vocabulary.scores
    for end in range(size + 1):
        best[end] = second[end] = -np.inf
    best[0] = 0
    for start in range(size):
        node, has_byte = 0, False
        for end in range(start + 1, size + 1):
            step = steps[_slot_of_step(steps, node, word[end - 1])]
            if step < 0:
                break
            node = step & _NODE_BITS
            token = ids_of_nodes[node]
            if token < 0:
                continue
            has_byte |= end == start + 1
            score = best[start] + scores[token]
            if score > best[end]:
                second[end] = max(best[end], second[start] + scores[token])
                best[end], last_tokens[end], starts[end] = score, token, start
            else:
                second[end] = max(second[end], score)
        if not has_byte:  # other rules apply to unknown tokens
            return False
    return best[size] - second[size] >= _LEAST_MARGIN
