"""Windows over sentences and tags of words, by hand and for random sentences; words of a text."""

import re

import numpy as np
import pytest

from albert_tf.tasks.tagging import windows
from albert_tf.tasks.tagging.conll import Sentence
from albert_tf.tasks.tagging.windows import WindowSettings, make_windows
from albert_tf.text.tokenizer import Tokenizer
from tests.helpers import train_spm

LABELS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    """Tokens of one to a few characters, with tokens across Chinese characters."""
    path = tmp_path_factory.mktemp("spm") / "spiece.model"
    lines = ["anna lives in wroclaw, carl met anna", "我在北京生活 北京 北京大学"] * 9
    return Tokenizer.from_file(train_spm(path, lines, vocab_size=60, hard_vocab_limit=False))


def tokens_of_words(tokenizer, table, window) -> dict[int, str]:
    numbers = table.sequence("word_numbers", window)
    ids = table.sequence("input_ids", window)
    return {int(n): tokenizer.id_to_token(id) for n, id in zip(numbers, ids, strict=True) if n}


def test_the_first_token_of_a_word_has_its_tag(tokenizer):
    words = ("Anna", "lives", "in", "Wroclaw")
    tags = (3, 0, 0, 1)
    table = make_windows(WindowSettings(tokenizer, 64, 9), [(7, Sentence(words, tags))])
    assert table.columns["sentence_index"].tolist() == [[7]]
    ids = table.sequence("input_ids", 0)
    assert ids.tolist() == [tokenizer.cls_id, *tokenizer.encode(" ".join(words)), tokenizer.sep_id]
    pieces = [list(map(tokenizer.id_to_token, tokenizer.encode(word))) for word in words]
    assert any(row[0] == "▁" for row in pieces)  # a token without text stands for no word
    assert tokens_of_words(tokenizer, table, 0) == {
        number: next(piece for piece in row if piece != "▁")
        for number, row in enumerate(pieces, start=1)
    }
    numbers = table.sequence("word_numbers", 0)
    tags_there = table.sequence("tag_numbers", 0)
    assert tags_there[numbers > 0].tolist() == [1 + tag for tag in tags]
    assert not tags_there[numbers == 0].any()
    assert not table.sequence("segment_ids", 0).any()
    plain = make_windows(WindowSettings(tokenizer, 64, 9), [(7, Sentence(words))])
    assert "tag_numbers" not in plain.sequences


def test_a_word_inside_a_token_continues_the_word_before(tokenizer):
    words = tuple("我在北京生活")
    settings = WindowSettings(tokenizer, 64, 9, word_separator="none")
    table = make_windows(settings, [(0, Sentence(words))])
    owned = tokens_of_words(tokenizer, table, 0)
    assert tokenizer.encode("我在北京生活") == table.sequence("input_ids", 0)[1:-1].tolist()
    assert "北京" in owned[3] and 4 not in owned  # 京 is in the token of 北
    probabilities = np.zeros((1, 64, 5))
    length = len(table.sequence("word_numbers", 0))
    probabilities[0, :length, 0] = 0.5
    place = int(np.flatnonzero(table.sequence("word_numbers", 0) == 3)[0])
    probabilities[0, place] = [0.1, 0.9, 0, 0, 0]
    (labels,), (certainty,) = windows.word_labels(table, probabilities, [Sentence(words)], LABELS)
    assert [LABELS[label] for label in labels][2:4] == ["B-LOC", "I-LOC"]
    assert certainty[2:4].tolist() == [0.9, 0.9]


def test_white_space_has_no_token_and_is_inside_entities_only(tokenizer):
    words = ("Anna", "\n\n", "met", "in", "\u3000", "Wroclaw", " ")
    table = make_windows(WindowSettings(tokenizer, 64, 9), [(0, Sentence(words))])
    assert sorted(tokens_of_words(tokenizer, table, 0)) == [1, 3, 4, 6]
    probabilities = np.zeros((1, 64, 5))
    numbers = table.sequence("word_numbers", 0)
    for number, label in {1: "B-PER", 3: "O", 4: "B-LOC", 6: "I-LOC"}.items():
        probabilities[0, numbers.tolist().index(number), LABELS.index(label)] = 1
    (labels,), _ = windows.word_labels(table, probabilities, [Sentence(words)], LABELS)
    found = [LABELS[label] for label in labels]
    assert found == ["B-PER", "O", "O", "B-LOC", "I-LOC", "I-LOC", "O"]


@pytest.mark.parametrize("invisible", ["\u200b", "\u200e", "\u00ad", "\u2060", "\ufeff"])
def test_invisible_characters_move_no_tag_to_another_word(tokenizer, invisible):
    words = (f"Anna{invisible}", f"{invisible}met", f"Wro{invisible}claw", f"{invisible}")
    table = make_windows(WindowSettings(tokenizer, 64, 9), [(0, Sentence(words))])
    found = tokens_of_words(tokenizer, table, 0)
    assert found.keys() >= {1, 2, 3}
    # The first token of each word is that of the word without the character.
    plain = make_windows(WindowSettings(tokenizer, 64, 9), [(0, Sentence(("Anna", "met", "Wro")))])
    expected = tokens_of_words(tokenizer, plain, 0)
    assert {number: found[number] for number in (1, 2)} == {n: expected[n] for n in (1, 2)}


def test_words_without_a_token_get_no_tag_from_another_sentence(tokenizer):
    sentences = [Sentence(("Anna",)), Sentence(("\u0301", "met")), Sentence(("Anna", "\u0301"))]
    table = make_windows(WindowSettings(tokenizer, 64, 9), list(enumerate(sentences)))
    probabilities = np.zeros((3, 64, 5))
    probabilities[..., 3] = 1
    labels, _ = windows.word_labels(table, probabilities, sentences, LABELS)
    assert [row.tolist() for row in labels] == [[3], [0, 3], [3, 4]]


@pytest.mark.parametrize("sizes", [(9, 3), (9, 1), (5, 40), (23, 7), (400, 64)])
def test_every_word_is_in_one_window_and_gets_its_own_tag_back(tokenizer, sizes):
    rng = np.random.default_rng(1)
    words = [
        "anna",
        "lives",
        "in",
        "Wroclaw",
        ",",
        "met",
        "Café",
        "½",
        "zero\u200bwidth",
        "北京",
        "x",
    ]
    sentences = [
        Sentence(tuple(rng.choice(words, count)), tuple(rng.integers(0, 5, count).tolist()))
        for count in (1, 60, *rng.integers(1, 20, 30))
    ]
    table = make_windows(WindowSettings(tokenizer, *sizes), list(enumerate(sentences)))
    assert table.lengths.max() <= sizes[0] and (len(table) > len(sentences)) == (sizes[0] < 400)
    numbers = table.sequences["word_numbers"]
    assert (numbers > 0).sum() == sum(len(sentence.words) for sentence in sentences)
    tags = table.batch(np.arange(len(table)), sizes[0], ["tag_numbers"])["tag_numbers"]
    probabilities = np.eye(5)[np.maximum(tags - 1, 0)]
    labels, _ = windows.word_labels(table, probabilities, sentences, LABELS)
    assert [tuple(row) for row in labels] == [sentence.tags for sentence in sentences]


@pytest.mark.parametrize(
    "text, words",
    [
        ("Ann (in Rome), 2 days.", "Ann|(|in|Rome|),|2|days|."),
        ("see http://a.b/c?d=1 now", "see|http://a.b/c?d=1|now"),
        ("@ann #food U.S. John's", "@ann|#food|U.S|.|John's"),
        ("$5 50% \u201cquoted\u201d...", "$|5|50|%|\u201c|quoted|\u201d..."),
        ("我在北京2008年", "我|在|北|京|2008|年"),
        ("  a\u00a0b\u3000c\nd 😀😀!", "a|b|c|d|😀😀!"),
        ("", ""),
        (" \t", ""),
    ],
)
def test_words_of_a_text(text, words):
    spans = windows.split_words(text)
    assert "|".join(text[start:end] for start, end in spans) == words
    assert re.sub(r"\s", "", text) == "".join(text[start:end] for start, end in spans)


def test_words_of_a_text_begin_and_end_where_they_are_seen():
    text = "\u200bAnn\u200e (\u2068in\u2069) zero\u200bwidth \u2060 !"
    words = [text[start:end] for start, end in windows.split_words(text)]
    assert words == ["Ann", "(", "in", ")", "zero\u200bwidth", "!"]
