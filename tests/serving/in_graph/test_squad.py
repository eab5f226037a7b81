"""SQuAD in the graph: windows as `make_windows` cuts them, answers as the runner gives them."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.model.heads import AlbertForSpan, AlbertForSpanOrNone
from albert_tf.serving.in_graph import squad as graph_squad
from albert_tf.serving.in_graph.squad import GraphSquad, best_window
from albert_tf.tasks import sequences
from albert_tf.tasks.squad import answers as squad_answers
from albert_tf.tasks.squad.questions import SquadQuestion, read_squad
from albert_tf.tasks.squad.windows import WindowSettings, make_windows
from albert_tf.text.tokenizer import Tokenizer
from tests.helpers import TINY, train_spm

SEQUENCES = ("input_ids", "segment_ids", "p_mask", "start_chars", "end_chars", "is_max_context")
WORDS = "the cat sat on a mat , in 1999, Café ½ ﬁnd Ｃat 😀 (far) . e\u0301 zero\u200bwidth 中文 x"
SPACES = [" ", " ", " ", "  ", "\n", "\u00a0", " \u0301 "]
SETTINGS = {
    "max_seq_length": 29,
    "doc_stride": 9,
    "max_query_length": 7,
    "max_answer_length": 6,
    "n_best_size": 8,
    "null_threshold": 0.0,
}
MODELS = {"1.1": AlbertForSpan, "2.0": AlbertForSpanOrNone}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """Pieces of one to a few characters, the lone marker among them."""
    path = tmp_path_factory.mktemp("pieces") / "spiece.model"
    lines = ["the cat sat on a mat, in 1999, cafe find (far). zero width x 1 2 12, the mat"] * 9
    return Tokenizer.from_file(train_spm(path, lines, vocab_size=60, hard_vocab_limit=False))


@pytest.fixture(scope="module")
def models(tokenizer):
    """A model of each version whose outputs differ from piece to piece."""
    config = TINY.replace(
        vocab_size=tokenizer.vocab_size,
        num_hidden_layers=1,
        max_position_embeddings=SETTINGS["max_seq_length"],
        initializer_range=0.5,
    )
    return {version: cls(config, seed=6) for version, cls in MODELS.items()}


def random_text(rng, num_words):
    words = rng.choice(WORDS.split(), num_words)
    return "".join(part for word in words for part in (word, rng.choice(SPACES)))


def random_questions(seed=0, number=30):
    """Contexts of no words to many, one much longer than the others."""
    rng = np.random.default_rng(seed)
    lengths = [0, 150, *rng.integers(0, 40, number - 2)]
    return [
        SquadQuestion(str(index), random_text(rng, rng.integers(0, 6)), random_text(rng, length))
        for index, length in enumerate(lengths)
    ]


def strings(questions):
    return (
        tf.constant([question.question for question in questions], tf.string),
        tf.constant([question.context for question in questions], tf.string),
    )


def answers_of(squad, model, questions):
    found = {name: value.numpy() for name, value in squad(model, *strings(questions)).items()}
    for name in ("text", "best_text"):
        if name in found:
            found[name] = [text.decode() for text in found[name]]
    return found


def runner_answers(tokenizer, settings, model, questions):
    """Best answers and null odds on the path of run_squad.py."""
    length = settings["max_seq_length"]
    cut = WindowSettings(tokenizer, length, settings["doc_stride"], settings["max_query_length"])
    table = make_windows(cut, list(enumerate(questions)))
    features = table.batch(np.arange(len(table)), length, ["input_ids", "segment_ids", "p_mask"])
    outputs = {name: value.numpy() for name, value in model(features).items()}
    limits = {name: settings[name] for name in ("n_best_size", "max_answer_length")}
    spans = squad_answers.candidate_spans(table, outputs, **limits)
    return squad_answers.best_answers(questions, spans, settings["n_best_size"]), spans.null_odds


def check_best(found, answers, prefix=""):
    """The very texts and characters, and the scores but for rounding."""
    best = [answer[0] for answer in answers]
    assert found[f"{prefix}text"] == [answer.text for answer in best]
    assert found[f"{prefix}start"].tolist() == [answer.start_char for answer in best]
    assert found[f"{prefix}end"].tolist() == [answer.end_char for answer in best]
    np.testing.assert_allclose(found["score"], [a.probability for a in best], atol=1e-5)


def windows_in_graph(squad, questions):
    windows = squad.windows(*strings(questions))
    features = windows.features(tf.constant(0), tf.size(windows.question))
    return {name: values.numpy() for name, values in features.items()}


def check_windows(squad, cut, questions):
    """Every feature of every window, and nothing but padding after it."""
    table = make_windows(cut, list(enumerate(questions)))
    found = windows_in_graph(squad, questions)
    assert found["question"].tolist() == table.columns["question_index"][:, 0].tolist()
    length = found["input_ids"].shape[1]
    assert length == table.lengths.max()
    expected = table.batch(np.arange(len(table)), length, SEQUENCES)
    for name in ("input_ids", "input_mask", "segment_ids", "p_mask", "is_max_context"):
        np.testing.assert_array_equal(found[name], expected[name], name)
    is_piece = expected["input_mask"] == 1
    for name in ("start_chars", "end_chars"):
        np.testing.assert_array_equal(found[name][is_piece], expected[name][is_piece], name)
    return len(table)


# --- Windows ---


@pytest.mark.parametrize("sizes", [(29, 9, 7), (11, 2, 4), (60, 100, 7), (16, 1, 12), (999, 5, 7)])
def test_windows_equal_those_of_the_runner(tokenizer, sizes):
    names = ("max_seq_length", "doc_stride", "max_query_length")
    squad = GraphSquad(tokenizer, SETTINGS | dict(zip(names, sizes, strict=True)), False)
    cut = WindowSettings(tokenizer, *sizes)
    questions = random_questions()
    count = check_windows(squad, cut, questions)
    assert (count > len(questions)) == (sizes[0] < 999)
    check_windows(squad, cut, questions[:1])  # of an empty context


@pytest.mark.parametrize("largest", [22, 300])
def test_most_context_equals_that_of_the_runner(largest):
    """A window's length counts if it differs by more than 100."""
    rng = np.random.default_rng(largest)
    rooms, strides, counts, expected = [], [], [], []
    for _ in range(40):
        stride, room = sorted(rng.integers(largest // 20 + 1, largest, 2))
        num_pieces = rng.integers(1, 4 * largest)
        firsts = np.arange(0, max(num_pieces - room, 0) + stride, stride)
        lengths = np.minimum(room, num_pieces - firsts)
        best = np.full(num_pieces, -1)
        marks = sequences.max_context(firsts, lengths)
        for number, (first, mark) in enumerate(zip(firsts, marks, strict=True)):
            best[first + np.flatnonzero(mark)] = number
        rooms.append(room)
        strides.append(stride)
        counts.append(len(firsts))
        expected.append(best)
    found = best_window(
        tf.ragged.constant([best.tolist() for best in expected]),
        *(tf.constant(values, tf.int64) for values in (rooms, strides, counts)),
    )
    assert max(counts) > 9
    np.testing.assert_array_equal(found, np.concatenate(expected))


# --- Answers ---


@pytest.mark.parametrize("version", MODELS)
def test_answers_equal_those_of_the_runner(tokenizer, models, version):
    questions = random_questions(seed=1, number=40)
    expected, null_odds = runner_answers(tokenizer, SETTINGS, models[version], questions)
    assert len({answers[0].text for answers in expected}) > 20
    assert len({len(answers) for answers in expected}) > 3
    squad = GraphSquad(tokenizer, SETTINGS, version == "2.0")
    call = tf.function(lambda *texts: squad(models[version], *texts))
    found = answers_of(lambda _, *texts: call(*texts), models[version], questions)
    assert (found["text"][0], found["score"][0]) == ("", 1)
    if version == "1.1":
        check_best(found, expected)
        return
    check_best(found, expected, "best_")
    np.testing.assert_allclose(found["null_odds"], null_odds, atol=1e-5)


def test_windows_are_read_some_at_a_time(tokenizer, models, monkeypatch):
    squad = GraphSquad(tokenizer, SETTINGS, True)
    questions = random_questions(seed=2, number=5)
    count = len(windows_in_graph(squad, questions)["question"])
    batches = []

    class Counting(AlbertForSpanOrNone):
        def call(self, inputs, **options):
            batches.append(len(inputs["input_ids"]))
            return super().call(inputs, **options)

    model = Counting(models["2.0"].config, seed=6)
    whole = answers_of(squad, model, questions)
    assert count > 7 and sum(batches) == count
    batches.clear()
    monkeypatch.setattr(graph_squad, "WINDOWS_AT_A_TIME", 7)
    parts = answers_of(squad, model, questions)
    assert sum(batches) == count and set(batches[:-1]) == {7}
    for name, values in whole.items():
        if name in ("score", "null_odds"):
            np.testing.assert_allclose(parts[name], values, atol=1e-5)
        else:
            assert list(parts[name]) == list(values)


class EqualScores(tf.Module):
    """Scores of pieces that are small whole numbers and hang on the piece alone, so that very many are equal."""

    num_starts = num_ends = 5

    def __init__(self, version):
        super().__init__()
        self.version = version

    def __call__(self, inputs, training=False):
        pieces = inputs["input_ids"]
        starts, ends = (tf.cast(pieces % number, tf.float32) for number in (3, 4))
        if self.version == "1.1":
            return {"start_logits": starts, "end_logits": ends}
        is_masked = inputs["p_mask"] == 1
        starts, ends = (tf.where(is_masked, -1e30, scores) for scores in (starts, ends))
        starts, ends = tf.math.top_k(starts, 5), tf.math.top_k(ends, 5)
        return {
            "start_top_log_probs": starts.values,
            "start_top_index": starts.indices,
            "end_top_log_probs": tf.tile(ends.values, [1, 5]),
            "end_top_index": tf.tile(ends.indices, [1, 5]),
            "cls_logits": tf.cast(pieces[:, -1], tf.float32),
        }


@pytest.mark.parametrize("version", MODELS)
def test_of_equal_spans_the_first_is_chosen(tokenizer, version):
    questions = random_questions(seed=3, number=40)
    model = EqualScores(version)
    expected, _ = runner_answers(tokenizer, SETTINGS, model, questions)
    ties = [len(best) > 1 and best[0].score == best[1].score for best in expected]
    assert sum(ties) > 10
    assert len({best[0].start_char for best in expected}) > 5
    found = answers_of(GraphSquad(tokenizer, SETTINGS, version == "2.0"), model, questions)
    check_best(found, expected, "best_" if version == "2.0" else "")


def test_the_threshold_decides_whether_there_is_an_answer(tokenizer, models):
    questions = random_questions(seed=4, number=9)
    odds = answers_of(GraphSquad(tokenizer, SETTINGS, True), models["2.0"], questions)["null_odds"]
    threshold = float(np.sort(odds)[4])  # equal to the fifth's, which keeps its answer
    squad = GraphSquad(tokenizer, SETTINGS | {"null_threshold": threshold}, True)
    found = answers_of(squad, models["2.0"], questions)
    is_null = found["null_odds"] > threshold
    assert is_null.sum() == 4
    for index, null in enumerate(is_null):
        for name, empty in (("text", ""), ("start", 0), ("end", 0)):
            assert found[name][index] == (empty if null else found[f"best_{name}"][index])
    assert all(found["best_text"][index] for index in np.flatnonzero(is_null) if index)


def test_spans_count_the_characters_of_the_text_as_read(tokenizer, models):
    contexts = [b"caf\xe9 the \xf0\x9f\x98 cat", "😀 e\u0301 the\u00a0 ½".encode()]
    found = GraphSquad(tokenizer, SETTINGS, False)(
        models["1.1"], tf.constant(["x"] * 2), tf.constant(contexts)
    )
    for context, text, start, end in zip(
        contexts, *(found[name].numpy() for name in ("text", "start", "end")), strict=True
    ):
        assert text.decode() == context.decode(errors="replace")[start:end] != ""


@pytest.mark.parametrize("version", MODELS)
def test_no_questions_have_no_answers(tokenizer, models, version):
    found = answers_of(GraphSquad(tokenizer, SETTINGS, version == "2.0"), models[version], [])
    assert {len(values) for values in found.values()} == {0}


def test_questions_without_context_are_refused(tokenizer, models):
    squad = GraphSquad(tokenizer, SETTINGS, False)
    with pytest.raises(tf.errors.InvalidArgumentError, match="differ in number"):
        squad(models["1.1"], tf.constant(["x", "y"]), tf.constant(["the cat"]))


# --- Real questions with the released vocabulary ---


@pytest.mark.slow
@pytest.mark.parametrize("version", MODELS)
def test_real_questions(real_data, released_model_file, version):
    file = {"1.1": "dev-v1.1.json", "2.0": "dev-v2.0.rebuilt.json"}[version]
    path = str(real_data / "squad" / file)
    questions = read_squad(path, version=version, flag="x", need_answers=False)[::83]
    settings = SETTINGS | {
        **{"max_seq_length": 128, "doc_stride": 48, "max_query_length": 24},
        **{"max_answer_length": 30, "n_best_size": 20},
    }
    tokenizer = Tokenizer.from_file(released_model_file)
    config = dataclasses.replace(
        TINY, vocab_size=tokenizer.vocab_size, max_position_embeddings=128, initializer_range=0.5
    )
    model = MODELS[version](config, seed=1)
    squad = GraphSquad(tokenizer, settings, version == "2.0")
    assert check_windows(squad, squad._cut, questions) > 150
    expected, _ = runner_answers(tokenizer, settings, model, questions)
    found = answers_of(squad, model, questions)
    check_best(found, expected, "best_" if version == "2.0" else "")
