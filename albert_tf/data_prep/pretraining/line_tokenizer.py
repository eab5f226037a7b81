"""Lines -> token ids, each distinct word tokenized once.

SentencePiece needs about a microsecond per word, and a corpus repeats the same words. No token crosses a word boundary,
so a word has the same tokens in every line. Here a compiled loop looks up every word in a table, and tokenizes only
words that are not in the table.

There is one exception: SentencePiece adds up the scores of a whole line in float32, so rounding errors, which depend on
the rest of the line, can decide between two segmentations of a word with equal scores. `Tokenizer` therefore tokenizes
a line itself if the line contains a word whose two best scores are close, a word with characters that are not printable
ASCII or not known to the model, or anything else that could change its ids. So every line gets the ids of `Tokenizer`
(`test_line_tokenizer.py`).

A WordPiece tokenizer already has its own table of words (`WordTokens`).
"""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.core.compilation import numba
from albert_tf.text.tokenizer import MARKER, SentencePieceTokenizer, Tokenizer

_SPACE, _PLAIN, _OTHER = range(3)  # classes of bytes
_LINE_END = ord("\n")
_MARKER_BYTE = 0xFF  # represents the marker; never occurs in UTF-8
_UNSURE = -1  # instead of a line's number of ids

# As long as the sum of a line's scores is above this, adding a score in float32 has an error of at most 2^-14. A word
# has at most one token per byte, so the errors of two segmentations differ by less than the margin.
_LEAST_SCORE = -2048.0
_MAX_WORD_BYTES = 48
_LEAST_MARGIN = 0.01

# Limits of the table; words that do not fit are tokenized each time they occur.
_MAX_WORDS = 1 << 18
_MAX_TEXT, _MAX_IDS = 12 * _MAX_WORDS, 4 * _MAX_WORDS

# SentencePiece's score of a user-defined token, if no token has a score above 0 (`EncodeOptimized` in its
# unigram_model.cc).
_SCORE_OF_USER_DEFINED = -0.1

_FNV_OFFSET, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_NODE_BITS = (1 << 24) - 1
_SPREAD, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


class Vocabulary(NamedTuple):
    """The vocabulary as a tree of bytes; a hash table maps a node and a byte to the next node."""

    steps: np.ndarray  # int64 [slots], node (32 bits), byte (8), next node (24); -1 in empty slots
    ids: np.ndarray  # int32 [nodes], the token that ends in a node; -1 if none does
    scores: np.ndarray  # float64 [V]
    new_ids: np.ndarray  # int32 [total], the tokens after the digit-comma rule
    new_offsets: np.ndarray  # int64 [V + 1], where those of each token start


class Words(NamedTuple):
    """Words that occurred, in a hash table; grows as lines are read."""

    slots: np.ndarray  # int32 [slots], number of a word; -1 in empty slots
    hashes: np.ndarray  # uint64 [words]
    text: np.ndarray  # uint8 [bytes], word after word
    text_offsets: np.ndarray  # int64 [words + 1]
    ids: np.ndarray  # int32 [ids], word after word
    ids_offsets: np.ndarray  # int64 [words + 1]; an unsure word has none
    scores: np.ndarray  # float64 [words], sum over the tokens
    size: np.ndarray  # int64 [1], number of words


class Scratch(NamedTuple):
    """Arrays for the current word, of N bytes."""

    word: np.ndarray  # uint8 [N], the marker first
    best: np.ndarray  # float64 [N + 1], best score of the first n bytes
    second: np.ndarray  # float64 [N + 1], best score of any other segmentation
    token: np.ndarray  # int32 [N + 1], last token of the best segmentation
    start: np.ndarray  # int32 [N + 1], where that token begins
    ids: np.ndarray  # int32 [many], the ids of the word


class LineTokenizer:
    """`Tokenizer.encode_batch` for a corpus.

    If the tokenizer's model is no unigram model with the usual treatment of white space, it tokenizes every line.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer

    def __reduce__(self):
        # Sending the tables to another process takes longer than making them, and the process may not need them.
        return LineTokenizer, (self._tokenizer,)

    @functools.cached_property
    def _tables(self) -> tuple[np.ndarray, np.ndarray, Vocabulary]:
        assert isinstance(self._tokenizer, SentencePieceTokenizer)
        return _tables_of(self._tokenizer)

    @functools.cached_property
    def _words(self) -> Words:
        return Words(
            slots=np.full(2 * _MAX_WORDS, -1, np.int32),
            hashes=np.empty(_MAX_WORDS, np.uint64),
            text=np.empty(_MAX_TEXT, np.uint8),
            text_offsets=np.zeros(_MAX_WORDS + 1, np.int64),
            ids=np.empty(_MAX_IDS, np.int32),
            ids_offsets=np.zeros(_MAX_WORDS + 1, np.int64),
            scores=np.empty(_MAX_WORDS),
            size=np.zeros(1, np.int64),
        )

    @property
    def vocab_size(self) -> int:
        """Number of tokens, V."""
        return self._tokenizer.vocab_size

    def encode(self, lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The ids of all lines one after the other, int32 [ids], and their number in each line, int64 [lines]."""
        if any("\n" in line for line in lines):
            raise ValueError("expected lines, got text with a line end in it")
        if not isinstance(self._tokenizer, SentencePieceTokenizer):
            ids_of_lines = self._tokenizer.encode_batch(lines)
            lengths = np.array([*map(len, ids_of_lines)], np.int64)
            return np.concatenate([np.zeros(0, np.int32), *ids_of_lines]), lengths
        clean = self._tokenizer.clean  # letters with accents often become ASCII
        cleaned = [line if line.isascii() else clean(line) for line in lines]
        text = np.frombuffer("".join([f"{line}\n" for line in cleaned]).encode(), np.uint8)
        ids, lengths = _encode_lines(text, len(lines), *self._tables, self._words)
        unsure = np.flatnonzero(lengths == _UNSURE)
        places = np.cumsum(np.maximum(lengths, 0))[unsure]
        ids_of_unsure = self._tokenizer.encode_batch([lines[int(index)] for index in unsure])
        lengths[unsure] = list(map(len, ids_of_unsure))
        between = np.split(ids, places)
        joined = [part for pair in zip(between, ids_of_unsure, strict=False) for part in pair]
        return np.concatenate([*joined, between[-1]]), lengths


# --- Tables of the vocabulary ---


def _tables_of(tokenizer: SentencePieceTokenizer) -> tuple[np.ndarray, np.ndarray, Vocabulary]:
    """The class of every byte, uint8 [256]; every plain byte after cleaning, uint8 [256]; the vocabulary."""
    # Imported here because it imports protobuf.
    from sentencepiece import sentencepiece_model_pb2 as model_pb2

    model = model_pb2.ModelProto.FromString(tokenizer.content)
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    normal = model_pb2.ModelProto.SentencePiece.NORMAL
    user_defined = model_pb2.ModelProto.SentencePiece.USER_DEFINED
    ids = {
        piece.piece: id
        for id, piece in enumerate(model.pieces)
        if piece.type in (normal, user_defined) and piece.piece.replace(MARKER, "").isascii()
    }
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
    classes, cleaned_bytes = np.full(256, _OTHER, np.uint8), np.zeros(256, np.uint8)
    for char in map(chr, range(128)) if is_usual else ():
        cleaned = tokenizer.clean(char)
        if not cleaned:
            classes[ord(char)] = _SPACE
        elif tokenizer.normalize(cleaned) == MARKER + cleaned:
            classes[ord(char)], cleaned_bytes[ord(char)] = _PLAIN, ord(cleaned)
    scores = [
        _SCORE_OF_USER_DEFINED if piece.type == user_defined else piece.score
        for piece in model.pieces
    ]
    replacements = tokenizer.replacement_table()
    new_offsets = np.cumsum([0, *replacements.counts])
    vocabulary = Vocabulary(*_tree_of(ids), np.array(scores), replacements.ids, new_offsets)
    return classes, cleaned_bytes, vocabulary


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


# --- Lines ---


@numba.njit(cache=True)
def _encode_lines(text, num_lines, byte_classes, cleaned_bytes, vocabulary, words):
    """The ids of lines that each end with a line end, and each line's number of ids, or `_UNSURE`."""
    ids = np.empty(2 * text.size, np.int32)  # at most one for every byte and as many markers
    lengths = np.full(num_lines, _UNSURE, np.int64)
    scratch = _new_scratch()
    # Taking an array out of a tuple counts a reference; in the loop, this would take longer than everything else.
    word, new_ids, best = scratch.word, scratch.ids, scratch.best
    kept_ids, ids_offsets, scores = words.ids, words.ids_offsets, words.scores
    table = (words.slots, words.hashes, words.text, words.text_offsets)
    count, line_start = 0, 0
    for line in range(num_lines):
        line_end = line_start
        while text[line_end] != _LINE_END:
            line_end += 1
        first_of_line, position, line_score = count, line_start, 0.0
        while line_score > _LEAST_SCORE:
            position = _skip_spaces(text, position, line_end, byte_classes)
            if position == line_end:
                lengths[line] = count - first_of_line
                break
            position, size, hash_ = _read_word(
                text, position, line_end, byte_classes, cleaned_bytes, word
            )
            if size == 1:
                break
            slot, number = _find_word(word, size, hash_, *table)
            if number >= 0:
                first, last = ids_offsets[number], ids_offsets[number + 1]
                _copy(kept_ids[first:last], ids, count)
                num_ids = last - first
                line_score += scores[number]
            else:
                num_ids = _segment_word(word[:size], vocabulary, scratch)
                _copy(new_ids[:num_ids], ids, count)
                _keep_word(word[:size], hash_, new_ids[:num_ids], best[size], slot, words)
                line_score += best[size]
            if num_ids == 0:
                break
            count += num_ids
        count = first_of_line + max(lengths[line], 0)
        line_start = line_end + 1
    return ids[:count], lengths


@numba.njit(cache=True)
def _skip_spaces(text, position, end, byte_classes):
    while position < end and byte_classes[text[position]] == _SPACE:
        position += 1
    return position


@numba.njit(cache=True)
def _read_word(text, position, end, byte_classes, cleaned_bytes, word):
    """Writes a word after its marker; returns its end, its size (1 if `Tokenizer` must tokenize it), and its hash."""
    size, hash_ = 1, _FNV_OFFSET
    while position < end and byte_classes[text[position]] != _SPACE:
        byte = text[position]
        if byte_classes[byte] == _OTHER or size == word.size:
            return position, 1, hash_
        word[size] = cleaned_bytes[byte]
        hash_ = (hash_ ^ np.uint64(word[size])) * _FNV_PRIME
        size += 1
        position += 1
    return position, size, hash_


@numba.njit(cache=True)
def _copy(source, target, start):
    """Copies an array into another; numba takes seconds to compile an assignment to a slice."""
    for index in range(source.size):
        target[start + index] = source[index]


# --- Words in the table ---


@numba.njit(cache=True)
def _find_word(word, size, hash_, slots, hashes, text, text_offsets):
    """A word's place in the hash table, or the empty slot where it would be; and its number, or -1."""
    slot = np.int64(hash_ >> _SHIFT) & (slots.size - 1)
    while slots[slot] >= 0:
        number = slots[slot]
        start = text_offsets[number]
        if hashes[number] == hash_ and text_offsets[number + 1] - start == size:
            index = 1
            while index < size and text[start + index] == word[index]:
                index += 1
            if index == size:
                return slot, number
        slot = (slot + 1) & (slots.size - 1)
    return slot, -1


@numba.njit(cache=True)
def _keep_word(word, hash_, ids, score, slot, words):
    """Adds a word if there is room for it; an unsure word is added without ids."""
    number = words.size[0]
    text_end = words.text_offsets[number] + word.size
    ids_end = words.ids_offsets[number] + ids.size
    if number == words.hashes.size or text_end > words.text.size or ids_end > words.ids.size:
        return
    words.slots[slot] = number
    words.hashes[number] = hash_
    _copy(word, words.text, words.text_offsets[number])
    words.text_offsets[number + 1] = text_end
    _copy(ids, words.ids, words.ids_offsets[number])
    words.ids_offsets[number + 1] = ids_end
    words.scores[number] = score
    words.size[0] += 1


# --- Words that are not in the table ---


@numba.njit(cache=True)
def _new_scratch():
    size = _MAX_WORD_BYTES
    word, ids = np.full(size, _MARKER_BYTE, np.uint8), np.empty(4 * size, np.int32)
    best, second = np.empty(size + 1), np.empty(size + 1)
    token, start = np.empty(size + 1, np.int32), np.empty(size + 1, np.int32)
    return Scratch(word, best, second, token, start, ids)


@numba.njit(cache=True)
def _segment_word(word, vocabulary, scratch):
    """Writes the ids of the tokens with the greatest sum of scores; returns their number, or 0 if unsure."""
    size, steps = word.size, vocabulary.steps
    ids_of_nodes, scores = vocabulary.ids, vocabulary.scores
    best, second, last_tokens, starts = scratch.best, scratch.second, scratch.token, scratch.start
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
            return 0
    if best[size] - second[size] < _LEAST_MARGIN:
        return 0
    return _write_ids(size, vocabulary, scratch)


@numba.njit(cache=True)
def _write_ids(size, vocabulary, scratch):
    """Writes the ids of the best segmentation, after the digit-comma rule; returns their number, 0 without room."""
    count, end = 0, size
    while end > 0:
        token = scratch.token[end]
        first, last = vocabulary.new_offsets[token], vocabulary.new_offsets[token + 1]
        if count + last - first > scratch.ids.size:
            return 0
        for index in range(last - 1, first - 1, -1):
            scratch.ids[count] = vocabulary.new_ids[index]
            count += 1
        end = scratch.start[end]
    for index in range(count // 2):
        other = count - 1 - index
        scratch.ids[index], scratch.ids[other] = scratch.ids[other], scratch.ids[index]
    return count
