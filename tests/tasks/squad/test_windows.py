"""Windows of SQuAD: by hand, by naive search, and the numbers of the original's for its real files."""

import numpy as np
import pytest

from albert_tf.core.errors import UserError
from albert_tf.tasks import sequences
from albert_tf.tasks.squad.questions import SquadQuestion, read_squad
from albert_tf.tasks.squad.windows import WindowSettings, make_windows
from albert_tf.text.tokenizer import Tokenizer
from tests.text.texts import CHINESE_LINES, write_vocabulary


def question(context, answer=None, start=None, text="who sat", **changes):
    """A question with one answer, at its first place in the context unless told."""
    answers = ()
    if answer is not None:
        answers = ((answer, context.index(answer) if start is None else start),)
    return SquadQuestion("id", text, context, answers, is_impossible=not answers, **changes)


def windows_of(tokenizer, *questions, max_seq_length=64, doc_stride=5, max_query_length=7):
    settings = WindowSettings(tokenizer, max_seq_length, doc_stride, max_query_length)
    return make_windows(settings, list(enumerate(questions)))


def pieces(tokenizer, table, window):
    ids = table.sequence("input_ids", window)
    return " ".join(tokenizer.id_to_token(id).replace("▁", "") or "▁" for id in ids)


def labels(table):
    names = ("start_positions", "end_positions", "is_impossible")
    return np.concatenate([table.columns[name] for name in names], axis=1).tolist()


def answer_text(table, window, context):
    """The characters of the context that a window is trained to find."""
    start, end, is_impossible = labels(table)[window]
    assert not is_impossible
    return context[
        table.sequence("start_chars", window)[start] : table.sequence("end_chars", window)[end]
    ]


# Room for 4 tokens of the context beside [CLS] who sat [SEP] [SEP].
SMALL = {"max_seq_length": 9, "doc_stride": 3, "max_query_length": 2}


def test_one_window_by_hand(words):
    context = "The cat sat on the mat"
    table = windows_of(words, question(context, "the mat"))
    assert pieces(words, table, 0) == "[CLS] who sat [SEP] the cat sat on the mat [SEP]"
    expected = {
        "segment_ids": [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1],
        "p_mask": [0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1],
        "start_chars": [-1, -1, -1, -1, 0, 4, 8, 12, 15, 19, -1],
        "end_chars": [-1, -1, -1, -1, 3, 7, 11, 14, 18, 22, -1],
        "is_max_context": [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0],
    }
    assert {name: table.sequence(name, 0).tolist() for name in expected} == expected
    assert labels(table) == [[8, 9, 0]]
    assert table.columns["question_index"].tolist() == [[0]]
    assert table.batch(np.array([0]), 13, ["p_mask"])["p_mask"][0].tolist()[-2:] == [1, 1]


def test_windows_overlap_by_hand(words):
    context = "the cat sat on the mat then slept"
    table = windows_of(words, question(context, "mat then"), **SMALL)
    assert [pieces(words, table, row) for row in range(len(table))] == [
        "[CLS] who sat [SEP] the cat sat on [SEP]",
        "[CLS] who sat [SEP] on the mat then [SEP]",
        "[CLS] who sat [SEP] then slept [SEP]",
    ]
    # "on" is last in one window and first in the next: the first has it. "then" as well.
    assert [table.sequence("is_max_context", row)[4:-1].tolist() for row in range(3)] == [
        [1, 1, 1, 1],
        [0, 1, 1, 1],
        [0, 1],
    ]
    # Trained on in the window that holds all of it.
    assert labels(table) == [[0, 0, 1], [6, 7, 0], [0, 0, 1]]
    assert answer_text(table, 1, context) == "mat then"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("cat sat on the mat", [[0, 0, 1]] * 3),
        ("sat on", [[6, 7, 0], [0, 0, 1], [0, 0, 1]]),
        ("on", [[7, 7, 0], [4, 4, 0], [0, 0, 1]]),
        ("on the", [[0, 0, 1], [4, 5, 0], [0, 0, 1]]),  # ends just beyond the first window
        ("sat on the", [[0, 0, 1]] * 3),  # begins just before the second
    ],
)
def test_a_window_is_trained_on_what_it_holds_whole(words, answer, expected):
    table = windows_of(words, question("the cat sat on the mat then slept", answer), **SMALL)
    assert labels(table) == expected


def test_long_question_loses_its_end(words):
    long = question("the cat", "cat", text="who sat on the mat")
    table = windows_of(words, long, max_query_length=3)
    assert pieces(words, table, 0) == "[CLS] who sat on [SEP] the cat [SEP]"
    assert table.uncut_lengths["max_query_length"].tolist() == [5]


@pytest.mark.parametrize("context", ["", " \n\t ", "\u0301"])
def test_context_without_pieces_has_a_window(words, context):
    first = question(context)
    second = question("the cat", "cat")
    table = windows_of(words, first, second)
    assert pieces(words, table, 0) == "[CLS] who sat [SEP] [SEP]"
    assert table.sequence("p_mask", 0).tolist() == [0, 1, 1, 1, 1]
    assert labels(table) == [[0, 0, 1], [5, 5, 0]]
    assert table.columns["question_index"].tolist() == [[0], [1]]


@pytest.mark.parametrize(
    ("context", "answer", "start", "expected"),
    [
        ("a naïve cat", "naïve", 2, "n a i v e"),
        ("a cafe\u0301 here", "cafe\u0301", 2, "c a f e"),
        ("a Ｃａｆé here", "Ｃａｆé", 2, "c a f e"),
        ("a ﬁnd here", "ﬁ", 2, "f i"),  # both pieces of one character
        ("a ﬁnd here", "nd", 3, "n d"),
        ("add ½ cup", "½", 4, "1 <unk> 2"),
        ("  leading space", "leading", 2, "l e a d i n g"),
        ("on and on and on", "on", 7, "o n"),
        ("on  and\n on", "and", 4, "a n d"),
        ("in 1,000 ways", "000", 5, "0 0 0"),
        ("zero\u200bwidth", "zero\u200bwidth", 0, "z e r o ▁ w i d t h"),
        ("he ran (far).", "far", 8, "f a r"),
        ("middle of words", "dd", 2, "d d"),
    ],
)
def test_answers_become_pieces(characters, context, answer, start, expected):
    assert context[start:].startswith(answer)
    table = windows_of(characters, question(context, answer, start))
    first, last, is_impossible = labels(table)[0]
    assert pieces(characters, table, 0).split()[first : last + 1] == expected.split()
    assert not is_impossible
    assert answer_text(table, 0, context) == answer


@pytest.mark.parametrize("seed", range(3))
def test_max_context_equals_naive_search(seed):
    rng = np.random.default_rng(seed)
    for largest in [22] * 50 + [300] * 3:  # a window's length counts if it differs by more than 100
        stride, room = sorted(rng.integers(largest // 20 + 1, largest, 2))
        num_pieces = rng.integers(room + 1, 4 * largest)
        firsts = np.arange(0, num_pieces - room + stride, stride)
        lengths = np.minimum(room, num_pieces - firsts)
        expected = []
        for window, (first, length) in enumerate(zip(firsts, lengths, strict=True)):
            for piece in range(first, first + length):
                scores = [
                    min(piece - f, f + n - 1 - piece) + 0.01 * n if f <= piece < f + n else -1
                    for f, n in zip(firsts, lengths, strict=True)
                ]
                expected.append(scores.index(max(scores)) == window)
        assert np.concatenate(sequences.max_context(firsts, lengths)).tolist() == expected


def test_settings_without_room(words):
    with pytest.raises(UserError, match="max_seq_length=67 must exceed --max_query_length=64 by"):
        WindowSettings(words, 67, 128, 64)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "version", "num_windows", "num_with_answer", "num_exact"),
    [
        ("dev-v1.1.json", "1.1", 10866, 10675, 10632),
        ("dev-v2.0.rebuilt.json", "2.0", 12272, 5994, 5976),
    ],
)
def test_real_windows(
    real_data, released_model_file, name, version, num_windows, num_with_answer, num_exact
):
    questions = read_squad(
        str(real_data / "squad" / name), version=version, flag="x", need_answers=True
    )
    settings = WindowSettings(Tokenizer.from_file(released_model_file), 384, 128, 64)
    table = make_windows(settings, list(enumerate(questions)))
    # Equal to what the original's algorithm gives for these files.
    assert len(table) == num_windows
    with_answer = np.flatnonzero(table.columns["is_impossible"][:, 0] == 0)
    assert len(with_answer) == num_with_answer
    # The others are answers that end inside a piece ("19" of "19th").
    starts, ends = (table.columns[f"{side}_positions"][:, 0] for side in ("start", "end"))
    exact = 0
    for row in with_answer:
        asked = questions[table.columns["question_index"][row, 0]]
        first = table.sequence("start_chars", row)[starts[row]]
        last = table.sequence("end_chars", row)[ends[row]]
        exact += asked.context[first:last] == asked.answers[0][0]
        assert asked.answers[0][0] in asked.context[first:last]
    assert exact == num_exact


@pytest.fixture(scope="module")
def wordpiece(tmp_path_factory):
    """A tokenizer with Chinese characters, and English words in several tokens."""
    return Tokenizer.from_file(write_vocabulary(tmp_path_factory.mktemp("words") / "vocab.txt"))


ENGLISH_LINES = [
    "The cat sat on the mat; the dog (far away) ran home, then slept.",
    "In 1,999 naïve Ｃafés, 12, were  closed\tat noon...",
    " Österreich a\u0301 and a zero\u200bwidth; the the the end",
]


@pytest.mark.parametrize("context", [*CHINESE_LINES, "  ".join([*CHINESE_LINES, *ENGLISH_LINES])])
def test_every_run_of_wordpiece_tokens_can_be_an_answer(wordpiece, context):
    """Its text is the substring that the label says, in whichever window."""
    _, spans = wordpiece.encode_with_offsets(context)
    rng = np.random.default_rng(1)
    for first in rng.integers(0, len(spans), 40):
        last = min(first + rng.integers(0, 12), len(spans) - 1)
        start, end = spans[first][0], spans[last][1]
        answer = context[start:end]
        table = windows_of(wordpiece, question(context, answer, start), max_seq_length=40)
        rows = [row for row, (*_, is_impossible) in enumerate(labels(table)) if not is_impossible]
        assert rows
        assert {answer_text(table, row, context) for row in rows} == {answer}
