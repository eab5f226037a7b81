"""N-gram masking and sentence pairs: pure functions of (pieces, rule, seed).

What the original decides with Python lists of strings is decided here on arrays of ids, compiled by numba.
Every function draws from a stream of its own, which its seed alone determines, so that an example is the
same whichever process makes it, and in whatever order.

Two steps make an example:

1. `plan_pairs` walks through documents and decides which sentences form a pair (segments A and B) and
   whether it is swapped. A pair is five numbers, not a copy of its pieces.
2. `make_examples` cuts pairs to length, adds [CLS] and [SEP], and masks.

Source: create_pretraining_data.py of the original; line numbers below are those of its commit b772393.
"""

from typing import NamedTuple

import numba
import numpy as np

SENTENCE_TASKS = ("sop", "nsp", "none")
_SOP, _NSP, _NONE = range(3)

# Columns of a table of pairs: where the segments lie in the array of ids, and the label.
A_START, A_END, B_START, B_END, LABEL = range(5)

# What has been decided about a piece.
_FREE, _MASKED, _PERMUTED = range(3)


class Documents(NamedTuple):
    """Documents as three flat arrays.

    >>> # two documents, the first of two sentences (5 6 7 and 8), the second of one (9)
    >>> Documents(np.array([5, 6, 7, 8, 9]), np.array([0, 3, 4, 5]), np.array([0, 2, 3]))

    Fields:
      ids: uint16 or int32 [pieces], all sentences one after the other.
      sentence_offsets: int64 [sentences + 1], where each sentence starts in `ids`, and the end.
      document_offsets: int64 [documents + 1], where each document starts in the sentences, and the end.
    """

    ids: np.ndarray
    sentence_offsets: np.ndarray
    document_offsets: np.ndarray


class PairRule(NamedTuple):
    """How sentences become pairs; made by `pair_rule`."""

    max_pieces: int  # of A and B together
    short_seq_prob: float
    task: int
    split_single_sentences: bool
    is_word_start: np.ndarray  # bool [vocab_size]


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


class Vocabulary(NamedTuple):
    """What masking must know of the pieces."""

    is_word_start: np.ndarray  # bool [vocab_size], which pieces start a word
    cls_id: int  # [CLS] and [SEP] are never masked
    sep_id: int
    mask_id: int


def pair_rule(
    is_word_start: np.ndarray,
    *,
    max_seq_length: int,
    short_seq_prob: float,
    sentence_task: str,
    single_segment: str,
) -> PairRule:
    """The rule that settings describe.

    Args:
      is_word_start: bool [vocab_size], which pieces start a word.
      max_seq_length: pieces in an example, [CLS] and twice [SEP] included.
      short_seq_prob: chance that a document is cut into pairs of a random, shorter length.
      sentence_task: `sop` swaps half of the pairs; `nsp` takes half of the B from another document; `none`
        leaves A and B in order, label 0.
      single_segment: what becomes of a piece of document that is a single sentence. `faithful`: B comes from
        another document, label 1, even with `sop`, as in the original. `clean`: the sentence is split before
        a random word into A and B, then treated like any other pair; one of a single word is dropped.
        With `none` it is always split, because every label is 0.
    """
    return PairRule(
        max_pieces=max_seq_length - 3,
        short_seq_prob=short_seq_prob,
        task=SENTENCE_TASKS.index(sentence_task),
        split_single_sentences=single_segment == "clean" or sentence_task == "none",
        is_word_start=is_word_start,
    )


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
def _combine(seed, number):
    return _scramble(_scramble(np.uint64(seed) + _GOLDEN) ^ np.uint64(number))


@numba.njit(cache=True)
def _new_stream(seed):
    state = np.empty(1, np.uint64)
    state[0] = seed
    return state


@numba.njit(cache=True)
def _uniform(state):
    """A number in [0, 1)."""
    state[0] += _GOLDEN
    return np.float64(_scramble(state[0]) >> _SHIFT_TO_53_BITS) * 2.0**-53


@numba.njit(cache=True)
def _below(state, bound):
    """An integer in [0, bound)."""
    return np.int64(_uniform(state) * bound)


def combine_seeds(*numbers: int) -> np.uint64:
    """One seed out of several numbers: (1, 2) and (2, 1) give unrelated ones."""
    seed = np.uint64(0)
    for number in numbers:
        seed = np.uint64(_combine(seed, np.uint64(number)))
    return seed


@numba.njit(cache=True)
def shuffled(count, seed):
    """The numbers 0 to count - 1 in random order, int64 [count]."""
    order = np.arange(count)
    state = _new_stream(seed)
    for last in range(count - 1, 0, -1):
        other = _below(state, last + 1)
        order[last], order[other] = order[other], order[last]
    return order


# --- Sentence pairs.


def plan_pairs(
    documents: Documents, rule: PairRule, seed: np.uint64
) -> tuple[np.ndarray, np.ndarray, int]:
    """The pairs of one pass through some documents.

    Each document is cut into chunks of whole sentences that reach the target length: `rule.max_pieces`, or,
    with the chance `short_seq_prob` for each document and pass, a uniform length of at least 2. A chunk is
    split between two sentences at random. A B that is not the continuation of A starts at a random sentence
    of another one of *these* documents, where the original draws from the whole corpus: that needs the whole
    corpus in memory. Sentences that such a B displaces are used again.

    Args:
      documents: the documents; a random B comes from among them.
      rule: the rule.
      seed: of this pass; another one gives other pairs.

    Returns:
      pairs: int64 [pairs, 5], in the order of the text; A and B may still be too long together.
      seeds: uint64 [pairs], what `make_examples` needs for each.
      num_dropped: sentences of a single word that could not be split.

    Source: create_pretraining_data.py:256-385.
    """
    num_sentences = documents.sentence_offsets.size - 1  # no pair takes less than one
    pairs = np.empty((num_sentences, 5), np.int64)
    seeds = np.empty(num_sentences, np.uint64)
    count, num_dropped = _plan_documents(documents, rule, np.uint64(seed), pairs, seeds)
    return pairs[:count], seeds[:count], num_dropped


@numba.njit(cache=True)
def _plan_documents(documents, rule, seed, pairs, seeds):
    count, num_dropped = 0, 0
    for document in range(documents.document_offsets.size - 1):
        document_seed = _combine(seed, document)
        first = count
        count, dropped = _plan_document(documents, document, rule, document_seed, pairs, count)
        num_dropped += dropped
        for index in range(first, count):
            seeds[index] = _combine(document_seed, index - first)
    return count, num_dropped


@numba.njit(cache=True)
def _plan_document(documents, document, rule, seed, pairs, count):
    offsets = documents.sentence_offsets
    chunk = documents.document_offsets[document]
    end = documents.document_offsets[document + 1]
    state = _new_stream(seed)
    target = rule.max_pieces
    if _uniform(state) < rule.short_seq_prob:
        target = 2 + _below(state, rule.max_pieces - 1)
    num_dropped = 0
    sentence = chunk
    while sentence < end:
        sentence += 1
        if sentence < end and offsets[sentence] - offsets[chunk] < target:
            continue
        pair = pairs[count]
        if sentence - chunk > 1:
            # Sentences that a random B displaces are read again.
            sentence = _pair_of_chunk(
                documents, document, chunk, sentence, target, rule, state, pair
            )
            count += 1
        elif _pair_of_sentence(documents, document, chunk, target, rule, state, pair):
            count += 1
        else:
            num_dropped += 1
        chunk = sentence
    return count, num_dropped


@numba.njit(cache=True)
def _pair_of_chunk(documents, document, chunk, end, target, rule, state, pair):
    """Makes a pair of sentences `chunk` to `end`; returns the first sentence that it does not use."""
    offsets = documents.sentence_offsets
    middle = chunk + 1 + _below(state, end - chunk - 1)
    changed = rule.task != _NONE and _uniform(state) < 0.5
    if changed and rule.task == _NSP:
        _set_segment(pair, A_START, offsets[chunk], offsets[middle])
        _take_random_b(documents, document, target, state, pair)
        return middle
    _set_ordered_pair(pair, offsets[chunk], offsets[middle], offsets[end], changed)
    return end


@numba.njit(cache=True)
def _pair_of_sentence(documents, document, sentence, target, rule, state, pair):
    """Makes a pair of one sentence; returns whether it could."""
    start = documents.sentence_offsets[sentence]
    end = documents.sentence_offsets[sentence + 1]
    _set_segment(pair, A_START, start, end)
    if not rule.split_single_sentences:
        _take_random_b(documents, document, target, state, pair)
        return True
    middle = _random_word_start(documents.ids, start, end, rule.is_word_start, state)
    if middle == start:
        return False
    changed = rule.task != _NONE and _uniform(state) < 0.5
    if changed and rule.task == _NSP:
        _take_random_b(documents, document, target, state, pair)
    else:
        _set_ordered_pair(pair, start, middle, end, changed)
    return True


@numba.njit(cache=True)
def _set_segment(pair, column, start, end):
    pair[column] = start
    pair[column + 1] = end


@numba.njit(cache=True)
def _set_ordered_pair(pair, start, middle, end, swapped):
    _set_segment(pair, B_START if swapped else A_START, start, middle)
    _set_segment(pair, A_START if swapped else B_START, middle, end)
    pair[LABEL] = 1 if swapped else 0


@numba.njit(cache=True)
def _take_random_b(documents, document, target, state, pair):
    """Sets B to sentences of a random document that fill up A to the target length; label 1."""
    num_documents = documents.document_offsets.size - 1
    other = document
    for _ in range(10):  # as the original: the same document, if ten draws find no other
        other = _below(state, num_documents)
        if other != document:
            break
    first = documents.document_offsets[other]
    last = documents.document_offsets[other + 1] - 1
    sentence = first + _below(state, last + 1 - first)
    start = documents.sentence_offsets[sentence]
    wanted = target - (pair[A_END] - pair[A_START])
    while sentence < last and documents.sentence_offsets[sentence + 1] - start < wanted:
        sentence += 1
    _set_segment(pair, B_START, start, documents.sentence_offsets[sentence + 1])
    pair[LABEL] = 1


@numba.njit(cache=True)
def _random_word_start(ids, start, end, is_word_start, state):
    """A random place behind `start` where a word starts; `start` if there is none."""
    num_places = 0
    for index in range(start + 1, end):
        num_places += is_word_start[ids[index]]
    if num_places == 0:
        return start
    skipped = _below(state, num_places)
    for index in range(start + 1, end):
        if is_word_start[ids[index]]:
            if skipped == 0:
                return index
            skipped -= 1
    return start


@numba.njit(cache=True)
def truncate_pair(pair, max_pieces, state):
    """Shortens A and B in place, a piece of the longer one at a time, at its front or back at random.

    Args:
      pair: int64 [5].
      max_pieces: most pieces of A and B together.
      state: the stream to draw from, uint64 [1].

    Source: create_pretraining_data.py:601-616.
    """
    length_a = pair[A_END] - pair[A_START]
    length_b = pair[B_END] - pair[B_START]
    while length_a + length_b > max_pieces:
        at_front = _uniform(state) < 0.5
        if length_a > length_b:
            pair[A_START if at_front else A_END] += 1 if at_front else -1
            length_a -= 1
        else:
            pair[B_START if at_front else B_END] += 1 if at_front else -1
            length_b -= 1


# --- Masking.


def mask(
    ids: np.ndarray, rule: MaskingRule, seed: np.uint64
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Masks spans of words.

    Spans of one to n words are taken from random places until `masked_lm_prob` of all pieces are masked; a
    span that would exceed this number is shortened by words, and left out if even its first word exceeds it
    or if it overlaps another. Each masked piece becomes [MASK] with a chance of 80 %, stays with 10 %, and
    becomes a piece drawn from the whole vocabulary with 10 %.

    Args:
      ids: int32 [length], with [CLS] and [SEP], which are never masked.
      rule: the rule.
      seed: of this example.

    Returns:
      output_ids: int32 [length].
      positions: int32 [predictions], ascending.
      labels: int32 [predictions], what to predict there.

    Source: create_pretraining_data.py:430-598.
    """
    output_ids = np.array(ids, np.int32)
    labels = np.full(output_ids.size, -1, np.int32)
    _mask_in_place(output_ids, labels, rule, _new_stream(np.uint64(seed)))
    positions = np.flatnonzero(labels >= 0).astype(np.int32)
    return output_ids, positions, labels[positions]


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
        drawn = turn + _below(state, num_words - turn)
        word = order[drawn]
        order[drawn] = order[turn]
        start = word_offsets[word]
        length = 1 + np.searchsorted(ngram_cumulative[:-1], _uniform(state), side="right")
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
    if _uniform(state) < 0.8:
        return rule.mask_id
    if _uniform(state) < 0.5:
        return piece
    return _below(state, rule.is_word_start.size)


@numba.njit(cache=True)
def _permute_in_place(ids, labels, positions, state):
    """Lets the pieces at some positions change places; the label is what stood there."""
    for position in positions:
        labels[position] = ids[position]
    for last in range(positions.size - 1, 0, -1):
        here, there = positions[last], positions[_below(state, last + 1)]
        ids[here], ids[there] = ids[there], ids[here]


# --- Examples.


class Features(NamedTuple):
    """The original's features of B examples, of L pieces and P predictions each."""

    input_ids: np.ndarray  # int32 [B, L], as the next three
    input_mask: np.ndarray
    segment_ids: np.ndarray
    token_boundary: np.ndarray
    masked_lm_positions: np.ndarray  # int32 [B, P]
    masked_lm_ids: np.ndarray  # int32 [B, P]
    masked_lm_weights: np.ndarray  # float32 [B, P]
    next_sentence_labels: np.ndarray  # int32 [B, 1], 0 for A and B in order, 1 otherwise


def make_examples(
    ids: np.ndarray,
    pairs: np.ndarray,
    seeds: np.ndarray,
    rule: MaskingRule,
    *,
    max_seq_length: int,
) -> dict[str, np.ndarray]:
    """The features of some pairs: cut to length, with [CLS] and [SEP], masked, padded with 0.

    Args:
      ids: uint16 or int32 [pieces], what the pairs point into.
      pairs: int64 [examples, 5], from `plan_pairs`.
      seeds: uint64 [examples], from `plan_pairs`.
      rule: the masking rule.
      max_seq_length: length L; the number of predictions P is `rule.max_predictions`, doubled when permuting.

    Returns:
      `Features`, by name.

    Source: create_pretraining_data.py:119-186, 345-383.
    """
    per_piece = (len(pairs), max_seq_length)
    per_prediction = (len(pairs), rule.max_predictions * (1 + rule.permute))
    features = Features(
        *(np.zeros(per_piece, np.int32) for _ in range(4)),
        masked_lm_positions=np.zeros(per_prediction, np.int32),
        masked_lm_ids=np.zeros(per_prediction, np.int32),
        masked_lm_weights=np.zeros(per_prediction, np.float32),
        next_sentence_labels=pairs[:, LABEL:].astype(np.int32),
    )
    _fill_examples(ids, pairs, seeds, rule, features)
    return features._asdict()


@numba.njit(cache=True)
def _fill_examples(ids, pairs, seeds, rule, features):
    input_ids = features.input_ids
    max_seq_length = input_ids.shape[1]
    label_at = np.empty(max_seq_length, np.int32)
    for row in range(len(pairs)):
        state = _new_stream(seeds[row])
        pair = pairs[row].copy()
        truncate_pair(pair, max_seq_length - 3, state)
        length = _join_segments(ids, pair, rule, input_ids[row], features.segment_ids[row])
        features.input_mask[row, :length] = 1
        for position in range(length):
            piece = input_ids[row, position]
            special = piece == rule.cls_id or piece == rule.sep_id
            features.token_boundary[row, position] = special or rule.is_word_start[piece]
        label_at[:length] = -1
        _mask_in_place(input_ids[row, :length], label_at[:length], rule, state)
        slot = 0
        for position in range(length):
            if label_at[position] >= 0:
                features.masked_lm_positions[row, slot] = position
                features.masked_lm_ids[row, slot] = label_at[position]
                features.masked_lm_weights[row, slot] = 1.0
                slot += 1


@numba.njit(cache=True)
def _join_segments(ids, pair, rule, input_ids, segment_ids):
    """Writes [CLS] A [SEP] B [SEP]; returns its length."""
    length_a = pair[A_END] - pair[A_START]
    length_b = pair[B_END] - pair[B_START]
    first_b = length_a + 2
    length = first_b + length_b + 1
    input_ids[0] = rule.cls_id
    for index in range(length_a):
        input_ids[1 + index] = ids[pair[A_START] + index]
    input_ids[first_b - 1] = rule.sep_id
    for index in range(length_b):
        input_ids[first_b + index] = ids[pair[B_START] + index]
    input_ids[length - 1] = rule.sep_id
    segment_ids[first_b:length] = 1
    return length
