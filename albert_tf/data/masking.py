"""N-gram masking: pure functions of (pieces, rule, seed).

What the original decides with Python lists of strings is decided here on arrays of ids, compiled by numba.
Every function draws from a stream of its own, which its seed alone determines, so that an example is masked the
same way whichever process masks it, and in whatever order. Data preparation masks with it before records are written,
training while it reads records that hold unmasked pieces. No TensorFlow here: data preparation does without.

Source: create_pretraining_data.py of the original; line numbers below are those of its commit b772393.
"""

import base64
from collections.abc import Mapping
from typing import Any, NamedTuple

import numba
import numpy as np

# The settings of a rule; they stand under these names among the flags of data preparation and in its metadata.
RULE_SETTINGS = (
    *("masked_lm_prob", "max_predictions_per_seq", "ngram", "favor_shorter_ngram"),
    *("do_whole_word_mask", "do_permutation"),
)

# What has been decided about a piece.
_FREE, _MASKED, _PERMUTED = range(3)


class MaskingRule(NamedTuple):
    """How pieces are masked; made by `masking_rule`."""

    masked_lm_prob: float
    max_predictions: int
    ngram_cumulative: np.ndarray  # float64 [ngram], chance that a span has at most 1, 2, ... words
    whole_words: bool
    permute: bool
    is_word_start: np.ndarray  # bool [vocab_size]
    cls_id: int
    sep_id: int
    mask_id: int

    @property
    def num_slots(self) -> int:
        """P: predictions that an example has room for; permuted pieces are predicted too."""
        return self.max_predictions * (1 + self.permute)


class Vocabulary(NamedTuple):
    """What masking must know of the pieces."""

    is_word_start: np.ndarray  # bool [vocab_size], which pieces start a word
    cls_id: int  # [CLS] and [SEP] are never masked
    sep_id: int
    mask_id: int

    def to_json(self) -> dict[str, Any]:
        """As plain values; `word_starts` is a bit for each piece, from the highest of the first byte on, in base64."""
        bits = np.packbits(self.is_word_start).tobytes()
        others = {name: getattr(self, name) for name in ("cls_id", "sep_id", "mask_id")}
        return {**others, "word_starts": base64.b64encode(bits).decode()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], vocab_size: int) -> "Vocabulary":
        """What `to_json` made of a vocabulary of so many pieces."""
        bits = np.frombuffer(base64.b64decode(values["word_starts"]), np.uint8)
        is_word_start = np.unpackbits(bits, count=vocab_size).astype(bool)
        return cls(is_word_start, values["cls_id"], values["sep_id"], values["mask_id"])


def masking_rule(
    vocabulary: Vocabulary,
    *,
    masked_lm_prob: float = 0.15,
    max_predictions_per_seq: int = 20,
    ngram: int = 3,
    favor_shorter_ngram: bool = True,
    do_whole_word_mask: bool = True,
    do_permutation: bool = False,
) -> MaskingRule:
    """The rule that settings describe.

    Args:
      vocabulary: the pieces.
      masked_lm_prob: share of the pieces to predict, [CLS] and [SEP] counted among the pieces.
      max_predictions_per_seq: most pieces to predict.
      ngram: most words in a span.
      favor_shorter_ngram: whether a span of n words has a chance proportional to 1/n (paper, section 4.1),
        or the same chances in reverse.
      do_whole_word_mask: whether the words of a span are whole words, or single pieces.
      do_permutation: whether as many pieces again change places among themselves and are predicted too.
    """
    chances = 1.0 / np.arange(1, ngram + 1)
    if not favor_shorter_ngram:
        chances = chances[::-1]
    return MaskingRule(
        masked_lm_prob=masked_lm_prob,
        max_predictions=max_predictions_per_seq,
        ngram_cumulative=np.cumsum(chances / chances.sum()),
        whole_words=do_whole_word_mask,
        permute=do_permutation,
        **vocabulary._asdict(),
    )


# --- Random numbers: splitmix64 (Steele, Lea and Flood, 2014), whose state is an array of one number.
# data_prep/pretraining/sentence_pairs.py calls these too. numba keeps compiled functions until their own file changes,
# so a change of these functions wants a change of that file.

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_SHIFT_1, _SHIFT_2, _SHIFT_3 = np.uint64(30), np.uint64(27), np.uint64(31)
_SHIFT_TO_53_BITS = np.uint64(11)


@numba.njit(cache=True)
def _scramble(number):
    number = (number ^ (number >> _SHIFT_1)) * _MIX_1
    number = (number ^ (number >> _SHIFT_2)) * _MIX_2
    return number ^ (number >> _SHIFT_3)


@numba.njit(cache=True)
def combine(seed, number):
    """One seed out of a seed and a number."""
    return _scramble(_scramble(np.uint64(seed) + _GOLDEN) ^ np.uint64(number))


@numba.njit(cache=True)
def new_stream(seed):
    """The state of a stream of random numbers, uint64 [1]."""
    state = np.empty(1, np.uint64)
    state[0] = seed
    return state


@numba.njit(cache=True)
def uniform(state):
    """A number in [0, 1)."""
    state[0] += _GOLDEN
    return np.float64(_scramble(state[0]) >> _SHIFT_TO_53_BITS) * 2.0**-53


@numba.njit(cache=True)
def below(state, bound):
    """An integer in [0, bound)."""
    return np.int64(uniform(state) * bound)


def combine_seeds(*numbers: int) -> np.uint64:
    """One seed out of several numbers: (1, 2) and (2, 1) give unrelated ones."""
    seed = np.uint64(0)
    for number in numbers:
        seed = np.uint64(combine(seed, np.uint64(number)))
    return seed


@numba.njit(cache=True, nogil=True)
def seeds_of(seed, numbers):
    """A seed for each of int64 [B] numbers, uint64 [B]: `combine` of both."""
    seeds = np.empty(numbers.size, np.uint64)
    for index in range(numbers.size):
        seeds[index] = combine(np.uint64(seed), np.uint64(numbers[index]))
    return seeds


@numba.njit(cache=True)
def shuffled(count, seed):
    """The numbers 0 to count - 1 in random order, int64 [count]."""
    order = np.arange(count)
    state = new_stream(seed)
    for last in range(count - 1, 0, -1):
        other = below(state, last + 1)
        order[last], order[other] = order[other], order[last]
    return order


# --- Masking.


class Predictions(NamedTuple):
    """What is to be predicted in B examples, in P slots each; slots that are not used hold 0."""

    positions: np.ndarray  # int32 [B, P], ascending
    ids: np.ndarray  # int32 [B, P], what stood there
    counts: np.ndarray  # int32 [B], slots in use


def mask_batch(
    input_ids: np.ndarray, num_pieces: np.ndarray, seeds: np.ndarray, rule: MaskingRule
) -> Predictions:
    """Masks spans of words, in place.

    Spans of one to n words are taken from random places until `masked_lm_prob` of all pieces are masked; a
    span that would exceed this number is shortened by words, and left out if even its first word exceeds it
    or if it overlaps another. Each masked piece becomes [MASK] with a chance of 80 %, stays with 10 %, and
    becomes a piece drawn from the whole vocabulary with 10 %.

    Args:
      input_ids: int32 [B, L], with [CLS] and [SEP], which are never masked.
      num_pieces: int32 [B], how many of the L are pieces.
      seeds: uint64 [B].
      rule: the rule.

    Source: create_pretraining_data.py:430-598.
    """
    per_slot = (len(input_ids), rule.num_slots)
    predictions = Predictions(
        np.zeros(per_slot, np.int32),
        np.zeros(per_slot, np.int32),
        np.zeros(len(input_ids), np.int32),
    )
    _mask_rows(input_ids, num_pieces, seeds, rule, predictions)
    return predictions


@numba.njit(
    cache=True, nogil=True
)  # so that the threads of an input pipeline mask at the same time
def _mask_rows(input_ids, num_pieces, seeds, rule, predictions):
    label_at = np.empty(input_ids.shape[1], np.int32)
    for row in range(len(input_ids)):
        labels = label_at[: num_pieces[row]]
        labels[:] = -1
        _mask_in_place(input_ids[row, : labels.size], labels, rule, new_stream(seeds[row]))
        slot = 0
        for position in range(labels.size):
            if labels[position] >= 0:
                predictions.positions[row, slot] = position
                predictions.ids[row, slot] = labels[position]
                slot += 1
        predictions.counts[row] = slot


@numba.njit(cache=True)
def _mask_in_place(ids, labels, rule, state):
    """Masks `ids` and sets `labels`, -1 elsewhere, where something is to be predicted."""
    if rule.masked_lm_prob == 0:
        return
    positions, word_offsets = find_words(ids, rule)
    # np.rint rounds halves to even, as Python's round does.
    num_wanted = max(1, np.int64(np.rint(ids.size * rule.masked_lm_prob)))
    num_wanted = min(rule.max_predictions, num_wanted)
    fate = np.zeros(positions.size, np.uint8)
    choose_spans(word_offsets, rule.ngram_cumulative, num_wanted, fate, _MASKED, state)
    for index in range(positions.size):
        if fate[index] == _MASKED:
            position = positions[index]
            labels[position] = ids[position]
            ids[position] = _masked_piece(ids[position], rule, state)
    if rule.permute:
        choose_spans(word_offsets, rule.ngram_cumulative, num_wanted, fate, _PERMUTED, state)
        _permute_in_place(ids, labels, positions[fate == _PERMUTED], state)


@numba.njit(cache=True)
def find_words(ids, rule):
    """Splits an example into words.

    The first piece opens a word whatever it is. A piece behind [SEP] that does not start a word belongs to
    the last word in front of it, as in the original.

    Args:
      ids: int32 [length], with [CLS] and [SEP].
      rule: the masking rule.

    Returns:
      positions: int64 [pieces], where the pieces other than [CLS] and [SEP] are.
      word_offsets: int64 [words + 1], where each word starts in `positions`, and the end.

    Source: create_pretraining_data.py:434-455.
    """
    positions = np.empty(ids.size, np.int64)
    word_offsets = np.empty(ids.size + 1, np.int64)
    num_pieces, num_words = 0, 0
    for position in range(ids.size):
        piece = ids[position]
        if piece == rule.cls_id or piece == rule.sep_id:
            continue
        if num_words == 0 or not rule.whole_words or rule.is_word_start[piece]:
            word_offsets[num_words] = num_pieces
            num_words += 1
        positions[num_pieces] = position
        num_pieces += 1
    word_offsets[num_words] = num_pieces
    return positions[:num_pieces], word_offsets[: num_words + 1]


@numba.njit(cache=True)
def choose_spans(word_offsets, ngram_cumulative, num_wanted, fate, mark, state):
    """Marks random spans of whole words, at most `num_wanted` pieces in all.

    Args:
      word_offsets: int64 [words + 1].
      ngram_cumulative: float64 [ngram].
      num_wanted: pieces to mark.
      fate: uint8 [pieces], set to `mark`; pieces that are not 0 are left alone.
      mark: the value to set.
      state: the stream to draw from, uint64 [1].

    Returns:
      The number of pieces marked; smaller than `num_wanted` when no word fits the rest.

    Source: create_pretraining_data.py:482-541.
    """
    num_words = word_offsets.size - 1
    order = np.arange(num_words)
    num_chosen = 0
    for turn in range(num_words):
        if num_chosen >= num_wanted:
            break
        # Shuffles as far as needed only: few of the words get a turn.
        drawn = turn + below(state, num_words - turn)
        word = order[drawn]
        order[drawn] = order[turn]
        start = word_offsets[word]
        length = 1 + np.searchsorted(ngram_cumulative[:-1], uniform(state), side="right")
        room = start + num_wanted - num_chosen
        # At the end of the text a span has fewer words than were drawn.
        while length > 1 and word_offsets[min(word + length, num_words)] > room:
            length -= 1
        end = word_offsets[min(word + length, num_words)]
        if end > room or _any_marked(fate, start, end):
            continue
        fate[start:end] = mark
        num_chosen += end - start
    return num_chosen


@numba.njit(cache=True)
def _any_marked(fate, start, end):
    for index in range(start, end):  # noqa: SIM110, any() of a generator is not compiled
        if fate[index]:
            return True
    return False


@numba.njit(cache=True)
def _masked_piece(piece, rule, state):
    if uniform(state) < 0.8:
        return rule.mask_id
    if uniform(state) < 0.5:
        return piece
    return below(state, rule.is_word_start.size)


@numba.njit(cache=True)
def _permute_in_place(ids, labels, positions, state):
    """Lets the pieces at some positions change places; the label is what stood there."""
    for position in positions:
        labels[position] = ids[position]
    for last in range(positions.size - 1, 0, -1):
        here, there = positions[last], positions[below(state, last + 1)]
        ids[here], ids[there] = ids[there], ids[here]
