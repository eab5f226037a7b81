"""Sentence pairs, masks and records of random documents: the rules that hold for all of them."""

import itertools
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from albert_tf.data import pretraining_examples as examples
from albert_tf.data.pretraining_examples import A_END, A_START, B_END, B_START, LABEL
from albert_tf.data.record_formats import FORMATS
from albert_tf.data.record_formats.record_writer import encode_examples
from tests.data.test_pretraining_examples import MASKING
from tests.properties.strategies import FEWER

CLS, SEP, MASK, FIRST = 2, 3, 4, 5
SIZE = 40
SEEDS = st.integers(0, 2**64 - 1)


@st.composite
def vocabularies(draw):
    """Which of `SIZE` tokens start a word."""
    starts = draw(st.lists(st.booleans(), min_size=SIZE, max_size=SIZE))
    return examples.Vocabulary(np.array(starts), CLS, SEP, MASK)


@st.composite
def documents(draw):
    """Documents of sentences of tokens, and the sentences as lists."""
    sentence = st.lists(st.integers(FIRST, SIZE - 1), min_size=1, max_size=12)
    texts = draw(st.lists(st.lists(sentence, min_size=1, max_size=6), min_size=1, max_size=5))
    sentences = [sentence for text in texts for sentence in text]
    return examples.Documents(
        np.array([id for sentence in sentences for id in sentence], np.int32),
        np.cumsum([0, *map(len, sentences)]),
        np.cumsum([0, *map(len, texts)]),
    )


@st.composite
def pair_rules(draw):
    settings = {
        "max_seq_length": draw(st.integers(5, 40)),
        "short_seq_prob": draw(st.sampled_from([0.0, 0.1, 1.0])),
        "sentence_task": draw(st.sampled_from(examples.SENTENCE_TASKS)),
        "single_segment": draw(st.sampled_from(["faithful", "clean"])),
    }
    return examples.pair_rule(draw(vocabularies()).is_word_start, settings), settings


@st.composite
def masking_settings(draw):
    return {
        "masked_lm_prob": draw(st.sampled_from([0.0, 0.01, 0.15, 0.5, 1.0])),
        "max_predictions_per_seq": draw(st.integers(1, 20)),
        "ngram": draw(st.integers(1, 5)),
        "favor_shorter_ngram": draw(st.booleans()),
        "do_whole_word_mask": draw(st.booleans()),
    }


@st.composite
def sequences(draw):
    """Examples of one length L: [CLS] A [SEP] B [SEP], padded."""
    num_rows, length = draw(st.integers(1, 4)), draw(st.integers(5, 24))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    num_tokens = rng.integers(5, length + 1, num_rows).astype(np.int32)
    first_b = (2 + rng.integers(1, num_tokens - 3)).astype(np.int32)
    input_ids = rng.integers(FIRST, SIZE, (num_rows, length)).astype(np.int32)
    input_ids[:, 0] = CLS
    rows = np.arange(num_rows)
    input_ids[rows, first_b - 1] = input_ids[rows, num_tokens - 1] = SEP
    input_ids[np.arange(length) >= num_tokens[:, None]] = 0
    labels = rng.integers(0, 2, (num_rows, 1)).astype(np.int32)
    seeds = rng.integers(0, 2**64 - 1, num_rows, np.uint64)
    return examples.Sequences(input_ids, num_tokens, first_b, labels, seeds)


@given(text=documents(), rule=pair_rules(), seed=SEEDS)
def test_pairs_are_whole_sentences_in_an_order_that_the_label_tells(text, rule, seed):
    rule, settings = rule
    pairs = examples.plan_pairs(text, rule, np.uint64(seed))
    assert np.array_equal(pairs, examples.plan_pairs(text, rule, np.uint64(seed)))
    edges = set(text.sentence_offsets.tolist())
    for pair in pairs:
        assert pair[A_START] < pair[A_END] and pair[B_START] < pair[B_END]
        swapped = pair[B_END] == pair[A_START]
        in_order = pair[A_END] == pair[B_START]
        if settings["sentence_task"] == "none":
            assert in_order and pair[LABEL] == 0
        if settings["sentence_task"] == "sop" and rule.split_single_sentences:
            assert swapped == bool(pair[LABEL]) and in_order != swapped
        if pair[LABEL] == 0:
            assert in_order
        begin, end = min(pair[A_START], pair[B_START]), max(pair[A_END], pair[B_END])
        assert begin in edges or not (swapped or in_order)
        assert end in edges or not (swapped or in_order)


@given(text=documents(), rule=pair_rules(), seed=SEEDS)
def test_without_random_b_every_token_is_in_one_pair(text, rule, seed):
    rule, settings = rule
    if settings["sentence_task"] == "nsp" or not rule.split_single_sentences:
        return
    pairs = examples.plan_pairs(text, rule, np.uint64(seed))
    count = np.zeros(len(text.ids), int)
    for a_start, a_end, b_start, b_end, _ in pairs:
        count[a_start:a_end] += 1
        count[b_start:b_end] += 1
    assert count.max(initial=0) <= 1
    # A sentence of a single word cannot be split, and is dropped if no other one joins it.
    missing = set(np.flatnonzero(count == 0).tolist())
    for start, end in itertools.pairwise(text.sentence_offsets.tolist()):
        is_word = not rule.is_word_start[text.ids[start + 1 : end]].any()
        assert missing.isdisjoint(range(start, end)) or (
            is_word and missing >= {*range(start, end)}
        )


@given(text=documents(), rule=pair_rules(), seed=SEEDS)
def test_joined_pairs_fit_and_keep_their_tokens_in_order(text, rule, seed):
    rule, settings = rule
    length = settings["max_seq_length"]
    pairs = examples.plan_pairs(text, rule, np.uint64(seed))
    seeds = examples.seeds_of(np.uint64(seed), np.arange(len(pairs)))
    vocabulary = examples.Vocabulary(rule.is_word_start, CLS, SEP, MASK)
    masks = examples.masking_rule(vocabulary, MASKING)
    joined = examples.join_pairs(text.ids, pairs, seeds, masks, max_seq_length=length)
    for row, pair in enumerate(pairs):
        size = joined.num_tokens[row]
        first_b = joined.first_b[row]
        ids = joined.input_ids[row]
        assert size <= length and not ids[size:].any()
        assert ids[0] == CLS and ids[first_b - 1] == ids[size - 1] == SEP
        a = ids[1 : first_b - 1].tolist()
        b = ids[first_b : size - 1].tolist()
        assert a and b and not {CLS, SEP} & {*a, *b}
        whole_a = text.ids[pair[A_START] : pair[A_END]].tolist()
        whole_b = text.ids[pair[B_START] : pair[B_END]].tolist()
        for part, whole in ((a, whole_a), (b, whole_b)):
            starts = range(len(whole) - len(part) + 1)
            assert any(whole[start : start + len(part)] == part for start in starts)
        if len(whole_a) + len(whole_b) <= length - 3:
            assert (a, b) == (whole_a, whole_b)
        else:
            assert size == length
        assert joined.labels[row] == pair[LABEL]


def mask(rows: examples.Sequences, rule: examples.MaskingRule):
    """The masked examples."""
    return examples.mask_batch(rows.input_ids, rows.num_tokens, rows.mask_seeds, rule)


@given(rows=sequences(), vocabulary=vocabularies(), settings=masking_settings())
def test_masks_leave_special_tokens_and_padding_and_remember_the_rest(rows, vocabulary, settings):
    rule = examples.masking_rule(vocabulary, settings)
    masked = mask(rows, rule)
    again = mask(rows, rule)
    assert all(np.array_equal(one, two) for one, two in zip(masked, again, strict=True))
    for row, count in enumerate(masked.counts):
        size = rows.num_tokens[row]
        positions = masked.positions[row, :count].tolist()
        assert positions == sorted(set(positions)) and all(0 < place < size for place in positions)
        before = rows.input_ids[row]
        assert not {CLS, SEP} & set(before[positions].tolist())
        assert masked.ids[row, :count].tolist() == before[positions].tolist()
        others = np.setdiff1d(np.arange(before.size), positions)
        assert np.array_equal(masked.input_ids[row, others], before[others])
        assert not masked.positions[row, count:].any()
        assert not masked.ids[row, count:].any()
        wanted = round(float(size) * settings["masked_lm_prob"])
        wanted = min(settings["max_predictions_per_seq"], max(1, wanted))
        wanted = wanted if settings["masked_lm_prob"] else 0
        assert count <= wanted <= rule.max_predictions


@given(rows=sequences(), vocabulary=vocabularies(), settings=masking_settings())
def test_no_word_is_masked_in_part(rows, vocabulary, settings):
    rule = examples.masking_rule(vocabulary, {**settings, "do_whole_word_mask": True})
    masked = mask(rows, rule)
    for row, count in enumerate(masked.counts):
        chosen = set(masked.positions[row, :count].tolist())
        places, offsets = examples.find_words(rows.input_ids[row, : rows.num_tokens[row]], rule)
        words = [
            set(places[one:two].tolist()) for one, two in zip(offsets, offsets[1:], strict=False)
        ]
        assert all(word <= chosen or not word & chosen for word in words)
        assert set().union(*words) >= chosen


@given(rows=sequences(), vocabulary=vocabularies(), settings=masking_settings())
def test_single_tokens_reach_the_number_wanted(rows, vocabulary, settings):
    # A longer span is left out where it meets another.
    settings |= {"do_whole_word_mask": False, "ngram": 1}
    masked = mask(rows, examples.masking_rule(vocabulary, settings))
    for size, count in zip(rows.num_tokens, masked.counts, strict=True):
        wanted = max(1, round(float(size) * settings["masked_lm_prob"]))
        wanted = min(wanted, settings["max_predictions_per_seq"], size - 3)
        assert count == (wanted if settings["masked_lm_prob"] else 0)


@FEWER
@given(rows=sequences(), vocabulary=vocabularies(), settings=masking_settings())
def test_all_formats_of_records_give_the_same_features(rows, vocabulary, settings, read):
    rule = examples.masking_rule(vocabulary, settings)
    one_each = np.ones(len(rows.labels), np.int64)
    metadata = {**settings, "max_seq_length": rows.input_ids.shape[1]}
    metadata |= {"vocabulary": vocabulary.to_json(), "vocab_size": SIZE}
    found = {}
    for name, masking in (("full", "static"), ("packed", "static"), ("packed", "dynamic")):
        content, counts = FORMATS[name].encode(rows, one_each, rule, masking)
        own = {**metadata, "masking": masking, "counts": counts}
        serialized = read(np.asarray(content))
        assert len(serialized) == len(rows.labels)
        parse = FORMATS[name].parser(own, FORMATS[name].schema(own), 7)
        parsed = parse(tf.range(len(serialized), dtype=tf.int64), serialized)
        found[name, masking] = {name: values.numpy() for name, values in parsed.items()}
    full, packed, dynamic = found.values()
    masked = mask(rows, rule)
    assert np.array_equal(full["input_ids"], masked.input_ids)
    assert np.array_equal(full["masked_lm_positions"], masked.positions)
    for name in full.keys() & packed.keys():
        width = packed[name].shape[1]  # a row has no more slots than its tokens can need
        np.testing.assert_array_equal(packed[name], full[name][:, :width], err_msg=name)
        assert not full[name][:, width:].any(), name
    for features in (packed, dynamic):
        np.testing.assert_array_equal(features["example_numbers"], full["input_mask"])
        for name in ("segment_ids", "next_sentence_labels"):
            np.testing.assert_array_equal(features[name], full[name])
    is_used = dynamic["masked_lm_weights"] > 0
    restored = dynamic["input_ids"].copy()
    row, _ = np.nonzero(is_used)
    restored[row, dynamic["masked_lm_positions"][is_used]] = dynamic["masked_lm_ids"][is_used]
    np.testing.assert_array_equal(restored, rows.input_ids)


@pytest.fixture(scope="session")
def read(tmp_path_factory):
    """A function that gives the examples that TensorFlow finds in the bytes of records, in a file."""
    path: pathlib.Path = tmp_path_factory.mktemp("records") / "a.tfrecord"

    def serialized(data: np.ndarray) -> tf.Tensor:
        path.write_bytes(data.tobytes())
        dataset = tf.data.TFRecordDataset(str(path))
        return tf.constant(list(dataset.as_numpy_iterator()))

    return serialized


# Numbers of one to five bytes; negative ones have ten.
ENDS = [0, -1, *(2**bits + change for bits in (7, 14, 21, 28) for change in (-1, 0))]
INT32 = st.sampled_from(ENDS) | st.integers(-(2**31), 2**31 - 1)
FEATURE_NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9)


@given(data=st.data(), num_rows=st.integers(1, 4))
def test_any_features_are_read_as_they_were_written(read, data, num_rows):
    names = data.draw(st.lists(FEATURE_NAMES, min_size=1, max_size=3, unique=True))
    features = {}
    lengths = {}
    for name in names:
        width = data.draw(st.integers(0, 5))
        is_float = data.draw(st.booleans())
        value = st.floats(width=32) if is_float else INT32
        rows = st.lists(value, min_size=width * num_rows, max_size=width * num_rows)
        kind = np.float32 if is_float else np.int32
        features[name] = np.array(data.draw(rows), kind).reshape(num_rows, width)
        if data.draw(st.booleans()):
            used = st.lists(st.integers(0, width), min_size=num_rows, max_size=num_rows)
            lengths[name] = np.array(data.draw(used))
    serialized = read(encode_examples(features, lengths)).numpy().tolist()
    assert len(serialized) == num_rows
    for row, content in enumerate(serialized):
        parsed = tf.train.Example.FromString(content).features.feature
        assert set(parsed) == set(names)
        for name in names:
            wanted = features[name][row, : lengths[name][row] if name in lengths else None]
            kind = "float_list" if wanted.dtype == np.float32 else "int64_list"
            values = np.array(getattr(parsed[name], kind).value, wanted.dtype)
            assert values.tobytes() == wanted.tobytes(), name
