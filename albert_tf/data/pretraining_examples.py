"""Makes pretraining examples by pure functions of (ids, rule, seed): sentence pairs, their sequences, and masks.

Functions compiled by numba work on arrays of ids. Each draws from its own stream of random numbers, which depends only
on its seed, so an example does not depend on the process that makes it, or on the order.

1. `plan_pairs` decides which sentences form a pair (segments A and B) and whether it is swapped.
2. `join_pairs` shortens pairs and adds [CLS] and [SEP].
3. `mask_batch` masks, either in data preparation or, for records of unmasked tokens, in training.

All of this is in one file because numba's cache does not notice changes of other files whose functions are called.
`packing.py` puts the sequences into rows.

Source: create_pretraining_data.py of the original; line numbers below are those of its commit b772393.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numba
import numpy as np

SENTENCE_TASKS = ("sop", "nsp", "none")
_SOP, _NSP, _NONE = range(3)

# Columns of a table of pairs: the positions of the segments in the array of ids, and the label.
A_START, A_END, B_START, B_END, LABEL = range(5)


# --- Rules.


class Vocabulary(NamedTuple):
    """The parts of a vocabulary that pairs and masks depend on."""

    is_word_start: np.ndarray  # bool [vocab_size], which tokens start a word
    cls_id: int  # [CLS] and [SEP] are never masked
    sep_id: int
    mask_id: int

    def to_json(self) -> dict[str, Any]:
        """As JSON values; `word_starts` has "1" for each token that starts a word, and "0" for the others."""
        others = {name: getattr(self, name) for name in ("cls_id", "sep_id", "mask_id")}
        return {**others, "word_starts": "".join(map(str, self.is_word_start.astype(int)))}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Vocabulary":
        """The vocabulary described by `to_json`."""
        is_word_start = np.array(list(values["word_starts"])) == "1"
        return cls(is_word_start, values["cls_id"], values["sep_id"], values["mask_id"])


class PairRule(NamedTuple):
    """How sentences become pairs; `pair_rule` makes it."""

    max_tokens: int  # of A and B together
    short_seq_prob: float  # that a document is cut into pairs of a random, shorter length
    task: int
    split_single_sentences: bool
    is_word_start: np.ndarray  # bool [vocab_size]


def pair_rule(is_word_start: np.ndarray, settings: Mapping[str, Any]) -> PairRule:
    """The rule that settings of data preparation describe, which may contain others.

    `sentence_task` is `sop` (half of the pairs are swapped), `nsp` (half of the B come from another document) or `none`
    (all in order, label 0). `single_segment` tells what becomes of a chunk of a document that is a single sentence.
    `faithful`: B comes from another document, label 1, even with `sop`, as in the original. `clean`: the sentence is
    split before a random word into A and B, which are then treated like any other pair; a sentence of a single word is
    dropped. With `none` it is always split, because every label is 0.
    """
    task = settings["sentence_task"]
    return PairRule(
        max_tokens=settings["max_seq_length"] - 3,  # [CLS], [SEP], [SEP]
        short_seq_prob=settings["short_seq_prob"],
        task=SENTENCE_TASKS.index(task),
        split_single_sentences=settings["single_segment"] == "clean" or task == "none",
        is_word_start=is_word_start,
    )


class MaskingRule(NamedTuple):
    """How tokens are masked; `masking_rule` makes it."""

    masked_lm_prob: float  # share of the tokens to predict; [CLS] and [SEP] count as tokens
    max_predictions: int
    ngram_cumulative: np.ndarray  # float64 [ngram], probability of at most 1, 2, ... words
    whole_words: bool  # or single tokens
    is_word_start: np.ndarray  # bool [vocab_size]
    cls_id: int
    sep_id: int
    mask_id: int


def masking_rule(vocabulary: Vocabulary, settings: Mapping[str, Any]) -> MaskingRule:
    """The rule that settings of data preparation, or the metadata of records, describe.

    The probability of a span of n words is proportional to 1/n (paper, section 4.1); without `favor_shorter_ngram`,
    the same probabilities are used in reverse order.
    """
    weights = 1.0 / np.arange(1, settings["ngram"] + 1)
    if not settings["favor_shorter_ngram"]:
        weights = weights[::-1]
    return MaskingRule(
        masked_lm_prob=settings["masked_lm_prob"],
        max_predictions=settings["max_predictions_per_seq"],
        ngram_cumulative=np.cumsum(weights / weights.sum()),
        whole_words=settings["do_whole_word_mask"],
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
def combine(seed, number):
    """A seed that depends on a seed and a number."""
    return _scramble(_scramble(np.uint64(seed) + _GOLDEN) ^ np.uint64(number))


@numba.njit(cache=True)
def new_stream(seed):
    """The state of a stream of random numbers, uint64 [1]."""
    return np.full(1, seed, np.uint64)


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
    """A seed that depends on several numbers and their order."""
    seed = np.uint64(0)
    for number in numbers:
        seed = np.uint64(combine(seed, np.uint64(number)))
    return seed


@numba.njit(cache=True, nogil=True)
def seeds_of(seed, numbers):
    """A seed for each of B numbers, int64 [B] -> uint64 [B]; each is `combine` of the seed and the number."""
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


# --- Sentence pairs.


class Documents(NamedTuple):
    """Documents as three flat arrays.

    >>> # two documents, the first of two sentences (5 6 7 and 8), the second of one (9)
    >>> Documents(np.array([5, 6, 7, 8, 9]), np.array([0, 3, 4, 5]), np.array([0, 2, 3]))
    """

    ids: np.ndarray  # uint16 or int32 [tokens], all sentences one after the other
    sentence_offsets: np.ndarray  # int64 [sentences + 1], where each begins in `ids`, and the end
    document_offsets: np.ndarray  # int64 [documents + 1], the first sentence of each, and the end


def divide_long_sentences(documents: Documents, rule: PairRule) -> Documents:
    """The documents, in which sentences that are longer than an example are divided; others are not changed.

    Such a sentence, as of a corpus with a paragraph in each line, would be a pair of its own, and lose what is too
    long. Its parts have at least half of the tokens of an example, so that two parts are a pair, and begin with a word.
    """
    offsets = documents.sentence_offsets
    is_long = np.diff(offsets) > rule.max_tokens
    if not is_long.any():
        return documents
    num_added = np.zeros(is_long.size + 1, np.int64)  # before each sentence
    added: list[int] = []
    for sentence in np.flatnonzero(is_long):
        starts = _starts_of_parts(documents.ids, offsets[sentence], offsets[sentence + 1], rule)
        num_added[sentence + 1] = len(starts)
        added += starts
    # Example: sentences at [0, 4, 99, 105], parts at [36, 68] -> [0, 4, 36, 68, 99, 105]; documents at [0, 2, 3] ->
    # [0, 4, 5].
    return documents._replace(
        sentence_offsets=np.sort(np.concatenate([offsets, np.array(added, np.int64)])),
        document_offsets=documents.document_offsets
        + np.cumsum(num_added)[documents.document_offsets],
    )


def _starts_of_parts(ids: np.ndarray, start: int, end: int, rule: PairRule) -> list[int]:
    """Where the second and later parts of a long sentence begin."""
    smallest = (rule.max_tokens + 1) // 2
    word_starts = start + np.flatnonzero(rule.is_word_start[ids[start:end]])
    starts: list[int] = []
    while end - start > smallest:
        start += smallest
        following = word_starts[np.searchsorted(word_starts, start) :]
        # A word may be as long as an example, and some vocabularies do not know where words start.
        if following.size and following[0] - start <= rule.max_tokens - smallest:
            start = int(following[0])
        if start < end:
            starts.append(int(start))
    return starts


def plan_pairs(documents: Documents, rule: PairRule, seed: np.uint64) -> np.ndarray:
    """The pairs of one pass through some documents.

    Each document is cut into chunks of whole sentences that reach the target length: `rule.max_tokens` or, with
    probability `short_seq_prob` for each document and pass, a uniform length of at least 2. A chunk is split between
    two random sentences. A B that does not continue A starts at a random sentence of another one of *these* documents.
    (The original draws from the whole corpus, which must then be in memory.) Sentences replaced by such a B are used
    again.

    Returns:
      The pairs, int64 [pairs, 5], in the order of the text, where A and B may still be too long together.

    Source: create_pretraining_data.py:256-385.
    """
    num_sentences = documents.sentence_offsets.size - 1  # every pair uses at least one
    pairs = np.empty((num_sentences, 5), np.int64)
    count = _plan_documents(documents, rule, np.uint64(seed), pairs)
    return pairs[:count]


@numba.njit(cache=True)
def _plan_documents(documents, rule, seed, pairs):
    count = 0
    for document in range(documents.document_offsets.size - 1):
        document_seed = combine(seed, document)
        count = _plan_document(documents, document, rule, document_seed, pairs, count)
    return count


@numba.njit(cache=True)
def _plan_document(documents, document, rule, seed, pairs, count):
    """Appends a document's pairs to the `count` pairs; returns their new number."""
    offsets = documents.sentence_offsets
    chunk = documents.document_offsets[document]
    end = documents.document_offsets[document + 1]
    state = new_stream(seed)
    target = rule.max_tokens
    if uniform(state) < rule.short_seq_prob:
        target = 2 + below(state, rule.max_tokens - 1)
    sentence = chunk
    while sentence < end:
        sentence += 1
        if sentence < end and offsets[sentence] - offsets[chunk] < target:
            continue
        pair = pairs[count]
        if sentence - chunk > 1:
            # Sentences replaced by a random B are read again.
            sentence = _pair_of_chunk(
                documents, document, chunk, sentence, target, rule, state, pair
            )
            count += 1
        elif _pair_of_sentence(documents, document, chunk, target, rule, state, pair):
            count += 1
        chunk = sentence
    return count


@numba.njit(cache=True)
def _pair_of_chunk(documents, document, chunk, end, target, rule, state, pair):
    """Makes a pair from the sentences `chunk` to `end`; returns the first sentence that it does not use."""
    offsets = documents.sentence_offsets
    middle = chunk + 1 + below(state, end - chunk - 1)
    changed = rule.task != _NONE and uniform(state) < 0.5
    if changed and rule.task == _NSP:
        pair[A_START], pair[A_END] = offsets[chunk], offsets[middle]
        _take_random_b(documents, document, target, state, pair)
        return middle
    _set_ordered_pair(pair, offsets[chunk], offsets[middle], offsets[end], changed)
    return end


@numba.njit(cache=True)
def _pair_of_sentence(documents, document, sentence, target, rule, state, pair):
    """Makes a pair from a single sentence; returns whether that was possible."""
    start, end = documents.sentence_offsets[sentence], documents.sentence_offsets[sentence + 1]
    pair[A_START], pair[A_END] = start, end
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
def _set_ordered_pair(pair, start, middle, end, swapped):
    first, second = (B_START, A_START) if swapped else (A_START, B_START)
    pair[first], pair[first + 1] = start, middle
    pair[second], pair[second + 1] = middle, end
    pair[LABEL] = 1 if swapped else 0


@numba.njit(cache=True)
def _take_random_b(documents, document, target, state, pair):
    """Sets B to sentences of a random document, until A and B have the target length; label 1."""
    num_documents = documents.document_offsets.size - 1
    other = document
    for _ in range(10):  # as in the original: after ten draws, the same document
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
    pair[B_START] = start
    pair[B_END] = documents.sentence_offsets[sentence + 1]
    pair[LABEL] = 1


@numba.njit(cache=True)
def _random_word_start(ids, start, end, is_word_start, state):
    """A random position after `start` at which a word starts; `start` if there is none."""
    places = start + 1 + np.flatnonzero(is_word_start[ids[start + 1 : end]])
    return places[below(state, places.size)] if places.size else start


@numba.njit(cache=True)
def truncate_pair(pair, max_tokens, state):
    """Shortens A and B in place by single tokens of the longer one, at its front or back at random (:601-616)."""
    length_a = pair[A_END] - pair[A_START]
    length_b = pair[B_END] - pair[B_START]
    while length_a + length_b > max_tokens:
        at_front = uniform(state) < 0.5
        if length_a > length_b:
            pair[A_START if at_front else A_END] += 1 if at_front else -1
            length_a -= 1
        else:
            pair[B_START if at_front else B_END] += 1 if at_front else -1
            length_b -= 1


# --- Sequences: [CLS] A [SEP] B [SEP].


class Sequences(NamedTuple):
    """B examples of up to L tokens that are not masked."""

    input_ids: np.ndarray  # int32 [B, L], padded with 0
    num_tokens: np.ndarray  # int32 [B], number of tokens, without padding
    first_b: np.ndarray  # int32 [B], where segment B begins
    labels: np.ndarray  # int32 [B, 1], 0 for A and B in order, 1 otherwise
    mask_seeds: np.ndarray  # uint64 [B]


def join_pairs(
    ids: np.ndarray, pairs: np.ndarray, seeds: np.ndarray, rule: MaskingRule, *, max_seq_length: int
) -> Sequences:
    """The tokens of pairs (`plan_pairs`) of `ids`, shortened to fit, with [CLS] and [SEP] (:119-186, 345-383)."""
    num_examples = len(pairs)
    input_ids = np.zeros((num_examples, max_seq_length), np.int32)
    num_tokens, first_b = np.empty((2, num_examples), np.int32)
    labels = pairs[:, LABEL:].astype(np.int32)
    mask_seeds = np.empty(num_examples, np.uint64)
    sequences = Sequences(input_ids, num_tokens, first_b, labels, mask_seeds)
    _fill_sequences(ids, pairs, seeds, rule.cls_id, rule.sep_id, sequences)
    return sequences


def tokens_of_text(pairs: np.ndarray, max_seq_length: int) -> int:
    """How many tokens of the text are in the sequences of pairs, without those of a random B, which are elsewhere, too.

    The tokens of a text that are in no sequence are those by which its pairs were shortened (`truncate_pair`).
    """
    length_a = pairs[:, A_END] - pairs[:, A_START]
    length_b = pairs[:, B_END] - pairs[:, B_START]
    max_tokens = max_seq_length - 3  # [CLS], [SEP], [SEP]
    # The longer segment is shortened until both are equally long, then both in turn. With 61 tokens, 50 + 20 become
    # 41 + 20, and 50 + 50 become 31 + 30.
    half = max_tokens // 2
    kept_a = np.minimum(length_a, np.maximum(max_tokens - length_b, max_tokens - half))
    kept_b = np.minimum(length_b, np.maximum(max_tokens - length_a, half))
    touches = (pairs[:, A_END] == pairs[:, B_START]) | (pairs[:, B_END] == pairs[:, A_START])
    return int(kept_a.sum() + kept_b[touches].sum())


def sequence_lengths(pairs: np.ndarray, max_seq_length: int) -> np.ndarray:
    """The number of tokens of the sequence of each pair, int64 [examples]."""
    segments = pairs[:, [A_END, B_END]] - pairs[:, [A_START, B_START]]
    return np.minimum(segments.sum(axis=1) + 3, max_seq_length)  # [CLS], [SEP], [SEP]


@numba.njit(cache=True)
def _copy(source, target, start):
    """Copies an array into another; an assignment to a slice takes numba seconds to compile."""
    for index in range(source.size):
        target[start + index] = source[index]


@numba.njit(cache=True)
def _fill_sequences(ids, pairs, seeds, cls_id, sep_id, sequences):
    max_seq_length = sequences.input_ids.shape[1]
    for row in range(len(pairs)):
        state = new_stream(seeds[row])
        pair = pairs[row].copy()
        truncate_pair(pair, max_seq_length - 3, state)
        a, b = ids[pair[A_START] : pair[A_END]], ids[pair[B_START] : pair[B_END]]
        first_b = a.size + 2
        input_ids = sequences.input_ids[row]
        input_ids[0] = cls_id
        _copy(a, input_ids, 1)
        input_ids[first_b - 1] = sep_id
        _copy(b, input_ids, first_b)
        input_ids[first_b + b.size] = sep_id
        sequences.first_b[row] = first_b
        sequences.num_tokens[row] = first_b + b.size + 1
        sequences.mask_seeds[row] = state[0]


# --- Masks.


class Masked(NamedTuple):
    """B masked examples, and the tokens to predict in them, in P slots each; unused slots contain 0."""

    input_ids: np.ndarray  # int32 [B, L]
    positions: np.ndarray  # int32 [B, P], ascending
    ids: np.ndarray  # int32 [B, P], the tokens before masking
    counts: np.ndarray  # int32 [B], slots in use


def mask_batch(
    input_ids: np.ndarray, num_tokens: np.ndarray, seeds: np.ndarray, rule: MaskingRule
) -> Masked:
    """Masks spans of words in a copy of the tokens.

    Spans of one to n words are taken from random places until `masked_lm_prob` of all tokens are masked. A span that
    would exceed this number is shortened by whole words; it is left out if even its first word exceeds the number, or
    if it overlaps another span. A masked token becomes [MASK] with probability 80 %, stays as it is with 10 %, and
    becomes a random token of the whole vocabulary with 10 %.

    The arguments are int32 [B, L], with [CLS] and [SEP], which are never masked; int32 [B]; and uint64 [B].

    Source: create_pretraining_data.py:430-598.
    """
    positions, ids = np.zeros((2, len(input_ids), rule.max_predictions), np.int32)
    masked = Masked(input_ids.copy(), positions, ids, np.zeros(len(input_ids), np.int32))
    _mask_rows(num_tokens, seeds, rule, masked)
    return masked


@numba.njit(cache=True, nogil=True)  # the threads of an input pipeline mask in parallel
def _mask_rows(num_tokens, seeds, rule, masked):
    label_at = np.empty(masked.input_ids.shape[1], np.int32)
    for row in range(num_tokens.size):
        labels = label_at[: num_tokens[row]]
        labels[:] = -1
        _mask_in_place(masked.input_ids[row, : labels.size], labels, rule, new_stream(seeds[row]))
        count = 0
        for position in range(labels.size):
            if labels[position] >= 0:
                masked.positions[row, count] = position
                masked.ids[row, count] = labels[position]
                count += 1
        masked.counts[row] = count


@numba.njit(cache=True)
def _mask_in_place(ids, labels, rule, state):
    """Masks `ids` in place; sets `labels` where a token must be predicted, and -1 elsewhere."""
    if rule.masked_lm_prob == 0:
        return
    positions, word_offsets = find_words(ids, rule)
    # np.rint rounds halves to even, as Python's round does.
    num_wanted = max(1, np.int64(np.rint(ids.size * rule.masked_lm_prob)))
    num_wanted = min(rule.max_predictions, num_wanted)
    is_chosen = choose_spans(word_offsets, rule.ngram_cumulative, num_wanted, state)
    for position in positions[is_chosen]:
        labels[position] = ids[position]
        ids[position] = _replacement(ids[position], rule, state)


@numba.njit(cache=True)
def find_words(ids, rule):
    """The positions of tokens other than [CLS] and [SEP], and where in this array each word begins, and the end.

    The first token always starts a word. A token after [SEP] that does not start a word belongs to the last word before
    it, as in the original (create_pretraining_data.py:434-455).
    """
    positions = np.empty(ids.size, np.int64)
    word_offsets = np.empty(ids.size + 1, np.int64)
    num_tokens, num_words = 0, 0
    for position in range(ids.size):
        token = ids[position]
        if token == rule.cls_id or token == rule.sep_id:
            continue
        if num_words == 0 or not rule.whole_words or rule.is_word_start[token]:
            word_offsets[num_words] = num_tokens
            num_words += 1
        positions[num_tokens] = position
        num_tokens += 1
    word_offsets[num_words] = num_tokens
    return positions[:num_tokens], word_offsets[: num_words + 1]


@numba.njit(cache=True)
def choose_spans(word_offsets, ngram_cumulative, num_wanted, state):
    """Which tokens are in random spans of words, at most `num_wanted` in total, bool [tokens] (source: :482-541)."""
    num_words = word_offsets.size - 1
    is_chosen = np.zeros(word_offsets[-1], np.bool_)
    order = np.arange(num_words)
    num_chosen = 0
    for turn in range(num_words):
        if num_chosen >= num_wanted:
            break
        # Shuffles only as far as needed, because few of the words are used.
        drawn = turn + below(state, num_words - turn)
        word = order[drawn]
        order[drawn] = order[turn]
        start = word_offsets[word]
        draw = uniform(state)
        length = 1
        while length < ngram_cumulative.size and draw >= ngram_cumulative[length - 1]:
            length += 1
        room = start + num_wanted - num_chosen
        # Before the end of the text, a span can have fewer words than were drawn.
        while length > 1 and word_offsets[min(word + length, num_words)] > room:
            length -= 1
        end = word_offsets[min(word + length, num_words)]
        if end > room or is_chosen[start:end].any():
            continue
        is_chosen[start:end] = True
        num_chosen += end - start
    return is_chosen


@numba.njit(cache=True)
def _replacement(token, rule, state):
    if uniform(state) < 0.8:
        return rule.mask_id
    if uniform(state) < 0.5:
        return token
    return below(state, rule.is_word_start.size)
