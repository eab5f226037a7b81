"""Sentence pairs and the examples made of them: pure functions of (pieces, rule, seed).

Masks are the other half of an example. They lie in `albert_tf/data/masking.py`, because training can mask too; this
module gives its functions along, so that data preparation finds both here. What is said there holds for both: arrays of
ids, compiled by numba, random numbers from a stream of each function's own.

1. `plan_pairs` walks through documents and decides which sentences form a pair (segments A and B) and
   whether it is swapped. A pair is five numbers, not a copy of its pieces.
2. `join_pairs` cuts pairs to length and adds [CLS] and [SEP].
3. `mask_batch` masks.

Source: create_pretraining_data.py of the original; line numbers below are those of its commit b772393.
"""

from typing import NamedTuple

import numba
import numpy as np

from albert_tf.data.masking import (
    RULE_SETTINGS,
    MaskingRule,
    Vocabulary,
    below,
    combine,
    combine_seeds,
    mask_batch,
    masking_rule,
    new_stream,
    shuffled,
    uniform,
)

# What lies in albert_tf/data/masking.py and is wanted here.
__all__ = [
    "RULE_SETTINGS",
    "MaskingRule",
    "Vocabulary",
    "combine_seeds",
    "mask_batch",
    "masking_rule",
    "shuffled",
]

SENTENCE_TASKS = ("sop", "nsp", "none")
_SOP, _NSP, _NONE = range(3)

# Columns of a table of pairs: where the segments lie in the array of ids, and the label.
A_START, A_END, B_START, B_END, LABEL = range(5)


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
      seeds: uint64 [pairs], what `join_pairs` needs for each.
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
        document_seed = combine(seed, document)
        first = count
        count, dropped = _plan_document(documents, document, rule, document_seed, pairs, count)
        num_dropped += dropped
        for index in range(first, count):
            seeds[index] = combine(document_seed, index - first)
    return count, num_dropped


@numba.njit(cache=True)
def _plan_document(documents, document, rule, seed, pairs, count):
    offsets = documents.sentence_offsets
    chunk = documents.document_offsets[document]
    end = documents.document_offsets[document + 1]
    state = new_stream(seed)
    target = rule.max_pieces
    if uniform(state) < rule.short_seq_prob:
        target = 2 + below(state, rule.max_pieces - 1)
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
    middle = chunk + 1 + below(state, end - chunk - 1)
    changed = rule.task != _NONE and uniform(state) < 0.5
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
    changed = rule.task != _NONE and uniform(state) < 0.5
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
        other = below(state, num_documents)
        if other != document:
            break
    first = documents.document_offsets[other]
    last = documents.document_offsets[other + 1] - 1
    sentence = first + below(state, last + 1 - first)
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
    skipped = below(state, num_places)
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
        at_front = uniform(state) < 0.5
        if length_a > length_b:
            pair[A_START if at_front else A_END] += 1 if at_front else -1
            length_a -= 1
        else:
            pair[B_START if at_front else B_END] += 1 if at_front else -1
            length_b -= 1


# --- Examples.


class Sequences(NamedTuple):
    """B examples that are not masked, of up to L pieces: [CLS] A [SEP] B [SEP]."""

    input_ids: np.ndarray  # int32 [B, L], filled up with 0
    num_pieces: np.ndarray  # int32 [B], how many of the L are pieces
    first_b: np.ndarray  # int32 [B], where segment B begins
    labels: np.ndarray  # int32 [B, 1], 0 for A and B in order, 1 otherwise
    mask_seeds: np.ndarray  # uint64 [B]


def join_pairs(
    ids: np.ndarray,
    pairs: np.ndarray,
    seeds: np.ndarray,
    rule: MaskingRule,
    *,
    max_seq_length: int,
) -> Sequences:
    """The pieces of some pairs, cut to length, with [CLS] and [SEP].

    Args:
      ids: uint16 or int32 [pieces], what the pairs point into.
      pairs: int64 [examples, 5], from `plan_pairs`.
      seeds: uint64 [examples], from `plan_pairs`.
      rule: knows the special pieces.
      max_seq_length: length L.

    Source: create_pretraining_data.py:119-186, 345-383.
    """
    num_examples = len(pairs)
    sequences = Sequences(
        input_ids=np.zeros((num_examples, max_seq_length), np.int32),
        num_pieces=np.empty(num_examples, np.int32),
        first_b=np.empty(num_examples, np.int32),
        labels=pairs[:, LABEL:].astype(np.int32),
        mask_seeds=np.empty(num_examples, np.uint64),
    )
    _fill_sequences(ids, pairs, seeds, rule.cls_id, rule.sep_id, sequences)
    return sequences


@numba.njit(cache=True)
def _fill_sequences(ids, pairs, seeds, cls_id, sep_id, sequences):
    max_seq_length = sequences.input_ids.shape[1]
    for row in range(len(pairs)):
        state = new_stream(seeds[row])
        pair = pairs[row].copy()
        truncate_pair(pair, max_seq_length - 3, state)
        sequences.mask_seeds[row] = state[0]
        first_b = pair[A_END] - pair[A_START] + 2
        sequences.first_b[row] = first_b
        sequences.num_pieces[row] = first_b + pair[B_END] - pair[B_START] + 1
        _join_segments(ids, pair, cls_id, sep_id, sequences.input_ids[row])


@numba.njit(cache=True)
def _join_segments(ids, pair, cls_id, sep_id, input_ids):
    """Writes [CLS] A [SEP] B [SEP]."""
    length_a = pair[A_END] - pair[A_START]
    length_b = pair[B_END] - pair[B_START]
    first_b = length_a + 2
    input_ids[0] = cls_id
    for index in range(length_a):
        input_ids[1 + index] = ids[pair[A_START] + index]
    input_ids[first_b - 1] = sep_id
    for index in range(length_b):
        input_ids[first_b + index] = ids[pair[B_START] + index]
    input_ids[first_b + length_b] = sep_id
