"""Masks and sentence pairs: hand-made examples, then shares at the real rates, then a plain restatement."""

import collections
import importlib
import inspect
import itertools
import random
import zlib

import numba
import numpy as np
import pytest

from albert_tf.data import pretraining_examples as examples
from albert_tf.data.pretraining_examples import find_words, seeds_of
from albert_tf.data.record_formats.full import FullFormat
from tests.helpers import ROOT

CLS, SEP, MASK = 2, 3, 4
VOCAB_SIZE = 1000
FIRST_START = 500  # ids from here on start a word, those below continue one
SEED = examples.combine_seeds(7)


MASKING = {
    "masked_lm_prob": 0.15,
    "max_predictions_per_seq": 77,
    "ngram": 3,
    "favor_shorter_ngram": True,
    "do_whole_word_mask": True,
}


def rule(**changes):
    vocabulary = examples.Vocabulary(np.arange(VOCAB_SIZE) >= FIRST_START, CLS, SEP, MASK)
    return examples.masking_rule(vocabulary, {**MASKING, **changes})


def mask(ids, masking_rule, seed):
    """Masks one example; returns its tokens, the positions to predict and what stood there."""
    input_ids = np.array([ids], np.int32)
    masked = examples.mask_batch(
        input_ids, np.array([len(ids)], np.int32), np.array([seed], np.uint64), masking_rule
    )
    count = masked.counts[0]
    return masked.input_ids[0], masked.positions[0, :count], masked.ids[0, :count]


def pair_rule(**changes):
    defaults = {
        "max_seq_length": 512,
        "short_seq_prob": 0.0,
        "sentence_task": "sop",
        "single_segment": "faithful",
    }
    return examples.pair_rule(np.arange(VOCAB_SIZE) >= FIRST_START, {**defaults, **changes})


def sequence(*words):
    """[CLS] words [SEP]; a word is a list of tokens."""
    return np.array([CLS, *sum(words, []), SEP], np.int32)


def words_of_lengths(lengths):
    """Words of distinct tokens: one that starts a word, then some that do not."""
    return [[FIRST_START + i % 400, *[10 + i % 400] * (n - 1)] for i, n in enumerate(lengths)]


def documents(*sentences_of_documents):
    """Documents of sentences of tokens."""
    sentences = [sentence for document in sentences_of_documents for sentence in document]
    return examples.Documents(
        np.array(list(itertools.chain(*sentences)), np.uint16),
        np.cumsum([0, *map(len, sentences)]),
        np.cumsum([0, *map(len, sentences_of_documents)]),
    )


def segments(docs, pair):
    a_start, a_end, b_start, b_end, label = pair.tolist()
    return docs.ids[a_start:a_end].tolist(), docs.ids[b_start:b_end].tolist(), label


def test_words_begin_at_start_tokens():
    ids = np.array([CLS, 600, 10, 11, 700, SEP, 800, 12, SEP], np.int32)
    positions, offsets = find_words(ids, rule())
    assert positions.tolist() == [1, 2, 3, 4, 6, 7]
    assert offsets.tolist() == [0, 3, 4, 6]


def test_a_continuation_behind_sep_belongs_to_the_word_before_it():
    ids = np.array([CLS, 600, SEP, 10, 700, SEP], np.int32)
    positions, offsets = find_words(ids, rule())
    assert positions.tolist() == [1, 3, 4]
    assert offsets.tolist() == [0, 2, 3]


def test_the_first_token_opens_a_word_whatever_it_is():
    _, offsets = find_words(np.array([CLS, 10, 11, 700, SEP], np.int32), rule())
    assert offsets.tolist() == [0, 2, 3]


# --- Masks: extreme rates.


def test_an_example_without_words():
    _, positions, _ = mask(np.array([CLS, SEP, SEP], np.int32), rule(), SEED)
    assert positions.size == 0


def test_seeds_of_numbers_in_another_order_differ():
    seeds = {int(examples.combine_seeds(*n)) for n in [(1, 2), (2, 1), (1,), (1, 2, 0), (0, 1, 2)]}
    assert len(seeds) == 5


def test_shuffled_is_a_permutation():
    order = examples.shuffled(1000, SEED)
    assert sorted(order.tolist()) == list(range(1000))
    assert 0.3 < np.mean(order > np.arange(1000)) < 0.7
    assert examples.shuffled(0, SEED).size == 0


# --- Masks: shares at the real rates.

LENGTHS = random.Random(5).choices([1, 1, 1, 2, 3], k=400)


def sequence_of_512():
    ids = sequence(*words_of_lengths(LENGTHS))[:511]
    return np.append(ids, SEP).astype(np.int32)


def mask_many(count, masking_rule, ids):
    return [mask(ids, masking_rule, examples.combine_seeds(11, i)) for i in range(count)]


def test_shares_of_masked_tokens_and_of_their_replacements():
    ids = sequence_of_512()
    results = mask_many(500, rule(), ids)
    assert np.mean([len(positions) for _, positions, _ in results]) / 512 == pytest.approx(
        0.15, abs=0.001
    )
    replaced = np.concatenate([output[positions] for output, positions, _ in results])
    labels = np.concatenate([labels for _, _, labels in results])
    # 38,500 tokens: three deviations are 0.006.
    assert np.mean(replaced == MASK) == pytest.approx(0.8, abs=0.007)
    assert np.mean(replaced == labels) == pytest.approx(0.1, abs=0.006)
    random_tokens = replaced[(replaced != MASK) & (replaced != labels)]
    assert random_tokens.min() < 20 and random_tokens.max() >= VOCAB_SIZE - 20
    assert random_tokens.mean() == pytest.approx(VOCAB_SIZE / 2, rel=0.05)


def runs(positions):
    """Lengths of the runs of consecutive positions."""
    gaps = np.flatnonzero(np.diff(positions) > 1)
    return np.diff(np.concatenate([[-1], gaps, [len(positions) - 1]]))


@pytest.mark.parametrize("favor_shorter, chances", [(True, (6, 3, 2)), (False, (2, 3, 6))])
def test_lengths_of_spans_where_they_fit(favor_shorter, chances):
    # At a rate of 0.5 % spans neither meet nor exceed the number wanted. At 15 % they do both, which makes runs
    # of masked words other than the spans that were drawn; the restatement below covers that.
    ids = sequence(*words_of_lengths([1] * 20_000))
    masking_rule = rule(
        masked_lm_prob=0.005, max_predictions_per_seq=1000, favor_shorter_ngram=favor_shorter
    )
    lengths = np.concatenate([runs(p) for _, p, _ in mask_many(200, masking_rule, ids)])
    for length, chance in zip((1, 2, 3), chances, strict=True):
        assert np.mean(lengths == length) == pytest.approx(chance / 11, abs=0.02)


def restated_mask(words, length, rng):
    """The original's choice of tokens, as its rule reads: on lists of words (tokens' places), in Python."""
    wanted = min(77, max(1, round(length * 0.15)))
    starts = list(range(len(words)))
    rng.shuffle(starts)
    taken = set()
    for start in starts:
        if len(taken) == wanted:
            break
        for size in range(rng.choices((1, 2, 3), (6, 3, 2))[0], 0, -1):
            span = [place for word in words[start : start + size] for place in word]
            if len(taken) + len(span) <= wanted:
                if taken.isdisjoint(span):
                    taken.update(span)
                break
    return np.array(sorted(taken))


def test_choice_of_tokens_equals_a_plain_restatement_in_distribution():
    ids = sequence_of_512()
    places, offsets = find_words(ids, rule())
    words = [places[a:b].tolist() for a, b in zip(offsets, offsets[1:], strict=False)]
    rng = random.Random(3)
    theirs = [restated_mask(words, 512, rng) for _ in range(4000)]
    ours = [positions for _, positions, _ in mask_many(4000, rule(), ids)]

    def shares(all_positions):
        counts = collections.Counter(min(n, 8) for p in all_positions for n in runs(p).tolist())
        return np.array([counts[n] for n in range(1, 9)]) / len(all_positions)

    assert shares(ours) == pytest.approx(shares(theirs), abs=0.1, rel=0.02)
    # How often each place is masked: 4,000 draws of 15 % deviate by 0.0056, two of them by 0.008.
    frequency = [np.bincount(np.concatenate(p), minlength=512) / 4000 for p in (ours, theirs)]
    assert np.std(frequency[0] - frequency[1]) < 0.0095
    assert np.corrcoef(frequency[0], frequency[1])[0, 1] > 0.6


ONE, TWO, THREE, FOUR = [510, 511], [520], [530, 531], [540]


def test_two_sentences_are_in_order_or_swapped():
    docs = documents([ONE, TWO])
    seen = collections.Counter()
    for seed in range(1000):
        pairs = examples.plan_pairs(docs, pair_rule(), examples.combine_seeds(seed))
        assert len(pairs) == 1
        a, b, label = segments(docs, pairs[0])
        assert (a, b) == ((TWO, ONE) if label else (ONE, TWO))
        seen[label] += 1
    assert seen[1] == pytest.approx(500, abs=50)


def test_chunks_reach_the_target_and_use_every_sentence_once():
    docs = documents([[600 + i] * 4 for i in range(50)])
    pairs = examples.plan_pairs(docs, pair_rule(max_seq_length=13), SEED)
    assert len(pairs) == 17  # three sentences of 4 tokens reach 10
    used = [sum(segments(docs, pair)[:2], []) for pair in pairs]
    assert sorted(sum(used, [])) == docs.ids.tolist()


def test_a_middle_is_between_any_two_sentences():
    docs = documents([ONE, TWO, THREE, FOUR])
    lengths = collections.Counter()
    for seed in range(900):
        pairs = examples.plan_pairs(docs, pair_rule(sentence_task="none"), seed)
        lengths[len(segments(docs, pairs[0])[0])] += 1
    assert set(lengths) == {2, 3, 5}
    assert min(lengths.values()) > 240


def test_b_is_from_another_document_with_nsp():
    first = [ONE, TWO, THREE]
    second = [FOUR, FOUR]
    docs = documents(first, second)
    labels = []
    num_pairs = collections.Counter()
    for seed in range(1000):
        pairs = examples.plan_pairs(docs, pair_rule(sentence_task="nsp"), seed)
        a, b, label = segments(docs, pairs[0])
        labels.append(label)
        if label:
            assert a in (ONE, ONE + TWO)
            assert b in (FOUR, FOUR + FOUR)
            # The sentences that B displaced come back.
            next_a, _, _ = segments(docs, pairs[1])
            assert next_a[0] == (TWO[0] if a == ONE else THREE[0])
        else:
            assert a + b == ONE + TWO + THREE
        num_pairs[len(pairs)] += 1
    assert np.mean(labels) == pytest.approx(0.5, abs=0.05)
    assert min(num_pairs) == 2 and max(num_pairs) > 3


def test_random_b_fills_up_to_the_target_only():
    docs = documents([[600]], [[700 + i] for i in range(100)])
    pairs = examples.plan_pairs(docs, pair_rule(max_seq_length=13), SEED)
    a, b, label = segments(docs, pairs[0])
    assert (a, label) == ([600], 1)
    assert len(b) == 9 or b[-1] == 799


def test_a_lone_sentence_faithfully():
    docs = documents([ONE], [TWO])
    for seed in range(20):
        pairs = examples.plan_pairs(docs, pair_rule(), examples.combine_seeds(seed))
        assert [segments(docs, pair) for pair in pairs] == [(ONE, TWO, 1), (TWO, ONE, 1)]


def test_the_only_document_stands_in_for_another():
    docs = documents([ONE])
    pairs = examples.plan_pairs(docs, pair_rule(), SEED)
    assert segments(docs, pairs[0]) == (ONE, ONE, 1)


@pytest.mark.parametrize("task", ["sop", "nsp", "none"])
def test_a_lone_sentence_cleanly(task):
    docs = documents([[600, 10, 700, 11, 800]], [TWO, TWO])
    seen = collections.Counter()
    for seed in range(400):
        pairs = examples.plan_pairs(
            docs,
            pair_rule(single_segment="clean", sentence_task=task),
            examples.combine_seeds(seed),
        )
        a, b, label = segments(docs, pairs[0])
        seen[str((a, b) if label == 0 else (b, a)), label] += 1
    in_order = {(str(([600, 10], [700, 11, 800])), 0), (str(([600, 10, 700, 11], [800])), 0)}
    assert {key for key in seen if key[1] == 0} == in_order
    share_changed = sum(count for key, count in seen.items() if key[1]) / 400
    assert share_changed == pytest.approx(0 if task == "none" else 0.5, abs=0.08)
    if task == "sop":
        assert {key for key in seen if key[1]} == {(text, 1) for text, _ in in_order}


def test_a_lone_word_is_dropped_cleanly():
    docs = documents([[600, 10, 11]], [ONE, TWO])
    pairs = examples.plan_pairs(docs, pair_rule(single_segment="clean"), SEED)
    assert len(pairs) == 1


def test_a_tenth_of_the_documents_is_cut_short():
    docs = documents(*[[[600]] * 40 for _ in range(3000)])
    pairs = examples.plan_pairs(docs, pair_rule(max_seq_length=43, short_seq_prob=0.1), SEED)
    document = np.searchsorted(docs.document_offsets, pairs[:, examples.A_START], side="right")
    # Of 39 targets from 2 to 40, one is not shorter.
    pairs_of_document = np.bincount(document)[1:]
    assert np.mean(pairs_of_document > 1) == pytest.approx(0.1 * 38 / 39, abs=0.02)


def test_the_longer_segment_is_cut_at_both_ends():
    fronts = []
    for seed in range(200):
        pair = np.array([0, 100, 200, 210, 0])
        examples.truncate_pair(pair, 50, np.array([examples.combine_seeds(seed)]))
        a_start, a_end, b_start, b_end, _ = pair.tolist()
        assert (b_start, b_end, a_end - a_start) == (200, 210, 40)
        fronts.append(a_start)
    assert np.mean(fronts) == pytest.approx(30, abs=1)  # of 60 tokens


def test_equal_segments_are_cut_in_turn():
    pair = np.array([0, 30, 100, 130, 0])
    examples.truncate_pair(pair, 25, np.array([SEED]))
    assert (pair[1] - pair[0], pair[3] - pair[2]) == (13, 12)


def full_features(docs, pair, masking_rule):
    """The original's features of one example."""
    sequences = examples.join_pairs(
        docs.ids, np.array([pair]), np.array([SEED]), masking_rule, max_seq_length=9
    )
    masked = examples.mask_batch(
        sequences.input_ids, sequences.num_tokens, sequences.mask_seeds, masking_rule
    )
    batch = FullFormat().features(sequences, masked, np.ones(1, int), masking_rule)
    assert not batch.lengths
    return {name: values.tolist() for name, values in batch.features.items()}


def test_features_of_an_unmasked_example():
    docs = documents([[600, 10], [700, 11]])
    features = full_features(docs, [0, 2, 2, 4, 1], rule(masked_lm_prob=0.0))
    assert features["input_ids"] == [[CLS, 600, 10, SEP, 700, 11, SEP, 0, 0]]
    assert features["input_mask"] == [[1, 1, 1, 1, 1, 1, 1, 0, 0]]
    assert features["segment_ids"] == [[0, 0, 0, 0, 1, 1, 1, 0, 0]]
    assert features["token_boundary"] == [[1, 1, 0, 1, 1, 0, 1, 0, 0]]
    assert features["next_sentence_labels"] == [[1]]
    assert features["masked_lm_weights"] == [[0.0] * 77]


def test_features_of_a_masked_example():
    docs = documents([[600, 10], [700, 11]])
    features = full_features(
        docs, [0, 2, 2, 4, 0], rule(masked_lm_prob=1.0, max_predictions_per_seq=5, ngram=2)
    )
    assert features["masked_lm_positions"] == [[1, 2, 4, 5, 0]]
    assert features["masked_lm_ids"] == [[600, 10, 700, 11, 0]]
    assert features["masked_lm_weights"] == [[1, 1, 1, 1, 0]]
    assert features["token_boundary"] == [[1, 1, 0, 1, 1, 0, 1, 0, 0]]


def test_masks_are_those_of_earlier_versions():
    # A run on records that training masks may be taken up by a later version, which must mask as this one does.
    ids = sequence_of_512()
    output, positions, _ = mask(ids, rule(), SEED)
    checksums = [zlib.crc32(array.tobytes()) for array in (output, positions)]
    assert checksums == [3339241203, 3282834099]
    seeds = seeds_of(12345, np.array([0, 1, 2**40]))
    assert seeds.tolist() == [5512004751721937425, 14365232997448226786, 145614433691485890]


COMPILED = [
    "albert_tf.data.packing",
    "albert_tf.data.pretraining_examples",
    "albert_tf.data.record_formats.record_writer",
    "albert_tf.data_prep.pretraining.compiled_tokenizer",
]


def test_all_files_of_compiled_functions_are_tested_here():
    sources = ROOT.glob("albert_tf/**/*.py")
    files = [path for path in sources if "@numba" in path.read_text()]
    assert {path.relative_to(ROOT).with_suffix("").as_posix() for path in files} == {
        name.replace(".", "/") for name in COMPILED
    }


@pytest.mark.parametrize("module", COMPILED)
def test_compiled_functions_call_none_of_another_file(module):
    """numba keeps a compiled function, with those that it calls, until the function's own file changes."""
    functions = [
        function
        for function in vars(importlib.import_module(module)).values()
        if isinstance(function, numba.core.dispatcher.Dispatcher)
    ]
    assert functions
    for function in functions:
        code = function.py_func.__code__
        names = {name: function.py_func.__globals__.get(name) for name in code.co_names}
        # A module other than NumPy could be the way to a function of another file.
        for name, value in names.items():
            assert not inspect.ismodule(value) or value is np, (function, name)
            if isinstance(value, numba.core.dispatcher.Dispatcher):
                assert value.py_func.__code__.co_filename == code.co_filename, (function, name)


@pytest.mark.parametrize("max_seq_length", [5, 6, 64])
def test_the_tokens_that_pairs_keep_are_those_that_truncation_leaves(max_seq_length):
    rng = np.random.default_rng(1)
    for length_a, length_b in rng.integers(1, 90, (300, 2)):
        in_order = np.array([0, length_a, length_a, length_a + length_b, 0])
        with_random_b = np.array([0, length_a, 1000, 1000 + length_b, 1])
        shortened = in_order.copy()
        examples.truncate_pair(shortened, max_seq_length - 3, examples.new_stream(np.uint64(7)))
        kept_a = shortened[examples.A_END] - shortened[examples.A_START]
        kept_b = shortened[examples.B_END] - shortened[examples.B_START]
        assert examples.tokens_of_text(in_order[None], max_seq_length) == kept_a + kept_b
        assert examples.tokens_of_text(with_random_b[None], max_seq_length) == kept_a


def test_only_sentences_longer_than_an_example_are_divided_before_words():
    is_word_start = np.array([False, True])  # token 1 starts a word
    settings = {"max_seq_length": 13, "short_seq_prob": 0.1}
    settings |= {"sentence_task": "sop", "single_segment": "faithful"}
    rule = examples.pair_rule(is_word_start, settings)  # 10 tokens
    ids = np.zeros(61, np.int64)
    ids[[16, 22, 30, 60]] = 1
    sentence_offsets = np.array([0, 10, 35, 57, 61])
    documents = examples.Documents(ids, sentence_offsets, np.array([0, 1, 3, 4]))
    divided = examples.divide_long_sentences(documents, rule)
    # 10 to 35: words at 16, 22 and 30; 35 to 57: no word starts there.
    assert divided.sentence_offsets.tolist() == [0, 10, 16, 22, 30, 35, 40, 45, 50, 55, 57, 61]
    assert divided.document_offsets.tolist() == [0, 1, 10, 11]
    assert divided.ids is ids
    short = documents._replace(sentence_offsets=np.array([0, 10, 20, 30, 40]))
    assert examples.divide_long_sentences(short, rule) is short
