"""SQuAD's answers and scores: the official rules by hand, n-best lists and thresholds against naive searches."""

import json
import math

import numpy as np
import pytest

from albert_tf.tasks.squad import answers as squad_answers
from albert_tf.tasks.squad.answers import Answer, Answers, ScoresV2, Spans, best_answers, f1_score
from albert_tf.tasks.squad.questions import SquadQuestion, read_squad
from albert_tf.tasks.squad.windows import WindowSettings, make_windows
from albert_tf.text.tokenizer import Tokenizer
from tests.text.texts import write_vocabulary

SOME_WORDS = ["the", "a", "cat", "sat", "on"]  # so few that different spans have the same text


def asked(*answers, context="", id="q1"):
    """A question with these answers, impossible without."""
    found = tuple((answer, 0) for answer in answers)
    return SquadQuestion(id, "who sat", context, found, is_impossible=not answers)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The U.S.  Army", "us army"),
        ("an apple, a pear and the rest", "apple pear and rest"),
        ("A", ""),
        ("the-end", "theend"),  # punctuation goes before articles
        ("1,000 and $5", "1000 and 5"),
        ("“quoted” – dash", "“quoted” – dash"),  # only ASCII punctuation
        ("another theme", "another theme"),
        ("\tÉtat \n c'est  MOI ", "état cest moi"),
        ("", ""),
    ],
)
def test_normalize_answer(text, expected):
    assert squad_answers.normalize_answer(text) == expected


@pytest.mark.parametrize(
    ("prediction", "reference", "expected"),
    [
        ("x y z", "y z w v", 4 / 7),  # precision 2/3, recall 2/4
        ("x x y", "x z", 2 * (1 / 3) * (1 / 2) / (1 / 3 + 1 / 2)),  # bags: one x in common
        ("x", "y", 0),
        ("", "", 0),
        ("", "x", 0),
        ("y x", "x y", 1),
    ],
)
def test_f1_score(prediction, reference, expected):
    assert f1_score(prediction.split(), reference.split()) == pytest.approx(expected, abs=1e-15)


def test_score_v1_by_hand():
    questions = [
        asked("the red cat", "a cat", id="exact with the second"),
        asked("red cat", "blue dog", id="best f1"),
        asked("cat", id="wrong"),
        asked("cat", id="missing"),
        asked("the", id="empty after normalizing"),
    ]
    given = {
        "exact with the second": "Cat!",
        "best f1": "red",
        "wrong": "dog",
        "empty after normalizing": "A",
        "of no question": "cat",
    }
    assert squad_answers.score_v1(questions, given) == {
        "exact_match": pytest.approx(100 * 2 / 5),
        # As in the official script, F1 is 0 where no words are left, although the match is exact.
        "f1": pytest.approx(100 * (1 + 2 / 3 + 0 + 0 + 0) / 5),
        "total": 5,
    }


def score_v2(questions, predictions, null_odds, threshold):
    return ScoresV2(questions, predictions, null_odds).at(threshold)


V2 = {  # questions -> predictions
    asked("red cat", "cat", id="right"): "the cat",
    asked("red cat", id="half"): "cat",
    asked("cat", id="not answered"): "",
    asked(id="rightly not answered"): "",
    asked(id="wrongly answered"): "cat",
    asked("the", id="only an article"): "",
    asked(id="answered by an article"): "A",
    asked("the", "cat", id="an article and a word"): "",
}


def test_score_v2_by_hand():
    given = {question.id: text for question, text in V2.items()}
    result = score_v2([*V2], given, {}, 1.0)
    # Without null odds, the only threshold leaves all questions without answer.
    best = {f"best_{name}": pytest.approx(100 * 3 / 8) for name in ("exact", "f1")}
    assert result == {
        **best,
        **dict.fromkeys(["best_exact_thresh", "best_f1_thresh"], 0.0),
        "exact": pytest.approx(100 * 4 / 8),
        "f1": pytest.approx(100 * (4 + 2 / 3) / 8),
        "total": 8,
        "HasAns_exact": pytest.approx(100 * 2 / 5),
        "HasAns_f1": pytest.approx(100 * (2 + 2 / 3) / 5),
        "HasAns_total": 5,
        "NoAns_exact": pytest.approx(100 * 2 / 3),
        "NoAns_f1": pytest.approx(100 * 2 / 3),
        "NoAns_total": 3,
    }


@pytest.mark.parametrize("seed", range(3))
def test_best_threshold_equals_search(seed):
    rng = np.random.default_rng(seed)
    questions = []
    predicted = {}
    odds = {}
    for number in range(61):
        id = f"q{number}"
        answer = " ".join(rng.choice(SOME_WORDS, rng.integers(1, 4)))
        answers = [answer] if rng.random() < 0.6 else []
        questions.append(asked(*answers, id=id))
        predicted[id] = rng.choice([*answers, "", "cat sat"])
        odds[id] = float(rng.normal() - 2 * bool(answers))
    result = score_v2(questions, predicted, odds, 1.0)
    for name in ("exact", "f1"):
        tried = {
            threshold: score_v2(questions, predicted, odds, threshold)[name]
            for threshold in [-math.inf, *odds.values()]
        }
        assert result[f"best_{name}"] == pytest.approx(max(tried.values()), abs=1e-9)
        reached = tried[result[f"best_{name}_thresh"]]
        assert reached == pytest.approx(max(tried.values()), abs=1e-9)


def test_scores_by_threshold():
    questions = [asked("cat", id="a"), asked("cat", id="b"), asked(id="c"), asked(id="d")]
    predicted = {"a": "cat", "b": "cat", "c": "cat", "d": "cat"}
    odds = {"a": -2.0, "b": 1.0, "c": 2.0, "d": -1.0}
    found = ScoresV2(questions, predicted, odds).results()
    assert (found["best_threshold"], found["exact"], found["exact_threshold_0"]) == (-2.0, 75, 50)
    assert (found["best_f1"], found["total"], found["NoAns_f1_threshold_0"]) == (75, 4, 50)
    wrong = ScoresV2(questions, dict.fromkeys(odds, "dog"), dict.fromkeys(odds, -1.0)).results()
    assert wrong["f1"] == wrong["best_f1"] == 50 and wrong["best_threshold"] < -1  # no answers


# --- N-best lists against a naive search ---

N_BEST = 6
MAX_ANSWER = 3
LENGTH = 17


def random_questions(seed, num_questions=9):
    rng = np.random.default_rng(seed)
    return [
        SquadQuestion(
            f"q{number}",
            " ".join(rng.choice(SOME_WORDS, rng.integers(1, 5))),
            " ".join(rng.choice(SOME_WORDS, rng.integers(1, 30))),
        )
        for number in range(num_questions)
    ]


def windows_of(words, questions, doc_stride=4):
    settings = WindowSettings(words, LENGTH - 2, doc_stride, 4)
    return make_windows(settings, list(enumerate(questions)))


def spans_v1(table, logits, **changes):
    """The candidates of a model of SQuAD 1.1 with these logits of starts and ends."""
    outputs = dict(zip(squad_answers.V1_OUTPUTS, logits, strict=True))
    sizes = {"n_best_size": N_BEST, "max_answer_length": MAX_ANSWER, **changes}
    return squad_answers.candidate_spans(table, outputs, **sizes)


def is_valid(table, window, start, end):
    """Whether a model's start and end are an answer, from the features of one window."""
    chars = table.sequence("start_chars", window)
    if not (start < len(chars) and end < len(chars) and start <= end < start + MAX_ANSWER):
        return False
    has_most_context = table.sequence("is_max_context", window)[start]
    return chars[start] >= 0 and chars[end] >= 0 and bool(has_most_context)


def naive_answers(questions, table, found):
    """Best answers of (question, window, start, end, start score, end score), in the order of the search."""
    answers = []
    for index, question in enumerate(questions):
        candidates = [entry[1:] for entry in found if entry[0] == index]
        candidates = [entry for entry in candidates if is_valid(table, *entry[:3])]
        seen = {}
        for window, start, end, *scores in sorted(candidates, key=lambda entry: -sum(entry[-2:])):
            first = table.sequence("start_chars", window)[start]
            text = question.context[first : table.sequence("end_chars", window)[end]]
            if text not in seen and len(seen) < N_BEST:
                seen[text] = tuple(scores)
        total = sum(math.exp(sum(scores)) for scores in seen.values())
        answers.append(
            [(text, *scores, math.exp(sum(scores)) / total) for text, scores in seen.items()]
        )
    return answers


def check_answers(questions, found, expected):
    """The same texts and scores, and the characters that they stand at."""
    assert any(len(best) == N_BEST for best in expected)
    for question, best, entries in zip(questions, found, expected, strict=True):
        if not entries:
            assert best == [Answer("", -1e6, -1e6, 1.0, 0, 0)]
            continue
        assert [answer[:3] for answer in best] == [entry[:3] for entry in entries]
        for answer, entry in zip(best, entries, strict=True):
            assert answer.probability == pytest.approx(entry[3])
            assert question.context[answer.start_char : answer.end_char] == answer.text


@pytest.mark.parametrize("seed", range(2))
def test_candidates_v2_equal_naive_search(words, seed, monkeypatch):
    monkeypatch.setattr(squad_answers, "_WINDOWS_AT_A_TIME", 5)
    rng = np.random.default_rng(seed)
    questions = random_questions(seed)
    table = windows_of(words, questions)
    num_starts, num_ends = 9, 7
    shape = (len(table), num_starts, num_ends)
    start_index = rng.permuted(np.tile(np.arange(LENGTH), (len(table), 1)), axis=1)[:, :num_starts]
    end_index = rng.permuted(np.tile(np.arange(LENGTH), (*shape[:2], 1)), axis=2)[..., :num_ends]
    start_scores = rng.normal(size=shape[:2]).astype(np.float32)
    end_scores = rng.normal(size=shape).astype(np.float32)
    cls_logits = rng.normal(size=len(table)).astype(np.float32)

    of_question = table.columns["question_index"][:, 0]
    found = []
    for window, start, end in np.ndindex(shape):
        pieces = start_index[window, start], end_index[window, start, end]
        scores = float(start_scores[window, start]), float(end_scores[window, start, end])
        found.append((of_question[window], window, *pieces, *scores))
    expected = naive_answers(questions, table, found)

    outputs = {
        "start_top_log_probs": start_scores,
        "start_top_index": start_index,
        "end_top_log_probs": end_scores.reshape(len(table), -1),
        "end_top_index": end_index.reshape(len(table), -1),
        "cls_logits": cls_logits,
    }
    sizes = {"n_best_size": 1, "max_answer_length": MAX_ANSWER}
    spans = squad_answers.candidate_spans(table, outputs, **sizes)
    check_answers(questions, best_answers(questions, spans, N_BEST), expected)
    for index in range(len(questions)):
        assert spans.null_odds[index] == min(cls_logits[of_question == index])


def v1_answers(table, questions, starts, ends, length=LENGTH, n_best_size=4):
    """The best answers if the model gives some pieces a logit and all others -20."""
    logits = np.full((2, len(table), length), -20, np.float32)
    for side, values in enumerate((starts, ends)):
        for (window, piece), value in values.items():
            logits[side, window, piece] = value
    spans = spans_v1(table, logits, n_best_size=n_best_size, max_answer_length=5)
    return best_answers(questions, spans, n_best_size)


def test_question_and_special_pieces_are_no_answers(words):
    questions = [asked("cat", context="the cat sat")]
    table = windows_of(words, questions)  # [CLS] who sat [SEP] the cat sat [SEP]
    better = {(0, piece): 9.0 - piece for piece in (0, 1, 7)}
    [[best, *_]] = v1_answers(table, questions, better | {(0, 5): 1.0}, better | {(0, 6): 1.0})
    assert best.text == "cat sat"
    # They take up places among the best, as in the original: then nothing is left.
    sides = better | {(0, 5): 1.0}, better | {(0, 6): 1.0}
    [answers] = v1_answers(table, questions, *sides, n_best_size=3)
    assert answers == [Answer("", -1e6, -1e6, 1.0, 0, 0)]


def test_answer_never_ends_in_white_space(characters):
    questions = [SquadQuestion("q1", "x", "cat  sat")]
    table = make_windows(WindowSettings(characters, 20, 9, 9), list(enumerate(questions)))
    # [CLS] ▁ x [SEP] ▁ c a t ▁ s a t [SEP]: from the first marker to the second, and the second alone.
    sides = {(0, 4): 5.0, (0, 8): 9.0}, {(0, 8): 5.0, (0, 9): 1.0}
    [answers] = v1_answers(table, questions, *sides, n_best_size=2)
    assert [(a.text, a.start_char, a.end_char) for a in answers] == [("s", 5, 6), ("cat", 0, 3)]


INVISIBLE = [
    *"\u200b\u200c\u200d\u200e\u200f\ufeff\u00ad\u2060\u202e\u2066\u2068\u2069\ufe0f\u034f\x00\u00a0\u2028",
    "\u200b\u2060",
]
VISIBLE = ("cafe\u0301", "❤\ufe0f", "straße", "可以", "½", "(5)")


def perfect_scores(tokenizer, questions):
    """The scores of a model whose logits are the targets."""
    table = make_windows(WindowSettings(tokenizer, 128, 64, 9), list(enumerate(questions)))
    starts = np.full((len(table), table.lengths.max()), -9.0, np.float32)
    ends = starts.copy()
    rows = np.arange(len(table))
    starts[rows, table.columns["start_positions"][:, 0]] = 9
    ends[rows, table.columns["end_positions"][:, 0]] = 9
    logits = {"start_logits": starts, "end_logits": ends}
    spans = squad_answers.candidate_spans(table, logits, n_best_size=3, max_answer_length=60)
    best = best_answers(questions, spans, 3)
    for question, (answer, *_) in zip(questions, best, strict=True):
        assert question.context[answer.start_char : answer.end_char] == answer.text
    return {
        question.id: answer.text for question, (answer, *_) in zip(questions, best, strict=True)
    }


@pytest.mark.parametrize("kind", ["characters", "pieces", "wordpiece", "cased"])
def test_invisible_characters_beside_and_inside_an_answer(kind, characters, tmp_path):
    if kind == "pieces":
        tokenizer = Tokenizer.from_file("models/albert-tiny-docs/spiece.model")
    elif kind == "characters":
        tokenizer = characters
    else:
        path = write_vocabulary(tmp_path / "vocab.txt")
        tokenizer = Tokenizer.from_file(path, do_lower_case=kind == "wordpiece")
    questions = []
    for odd in INVISIBLE:
        for context, answer in (
            (f"He said{odd} hello to all", "hello"),
            (f"He said {odd}hello to all", "hello"),
            (f"He said hello{odd} to all", "hello"),
            (f"He said hello {odd}to all", "hello"),
            (f"{odd}hello{odd}", "hello"),
            (f"He said hello{odd}world (to) all", f"hello{odd}world"),
            (f"{odd}He {odd}said{odd} hello {odd}", "said"),
            (f"on the straße{odd} end", "straße"),
        ):
            questions.append((context, answer))
    for answer in VISIBLE:
        questions += [
            (f"He said {answer} to all", answer),
            (f"He said\u200b {answer}\u200b to all", answer),
        ]
    questions = [
        SquadQuestion(str(number), "Who", context, ((answer, context.index(answer)),))
        for number, (context, answer) in enumerate(questions)
    ]
    predicted = perfect_scores(tokenizer, questions)
    wrong = {
        ascii(question.context): ascii(predicted[question.id])
        for question in questions
        if predicted[question.id] != question.answers[0][0]
    }
    assert not wrong
    assert squad_answers.score_v1(questions, predicted)["exact_match"] == 100


def spans_of(entries, null_odds=()):
    """Spans of (question, start, end, start score, end score)."""
    columns = np.array(entries, np.float64).reshape(-1, 5).T
    return Spans(*columns[:3].astype(np.int32), *columns[3:], np.array(null_odds, np.float64))


def test_what_the_files_hold():
    questions = [asked(context="the cat sat", id="a"), asked(context="a dog ran", id="b")]
    spans = spans_of([(0, 4, 7, -1, -1), (0, 0, 7, -1, -2), (1, 2, 5, 0, 0)], [0.5, -0.5])
    answers = best_answers(questions, spans, 20)
    assert Answers(questions, answers).texts() == {"a": "cat", "b": "dog"}
    with_odds = Answers(questions, answers, spans.null_odds)
    assert with_odds.texts(0.0) == {"a": "", "b": "dog"}
    assert with_odds.texts(0.5) == {"a": "cat", "b": "dog"}
    assert with_odds.texts(-1.0) == {"a": "", "b": ""}
    assert with_odds.null_odds_by_id() == {"a": 0.5, "b": -0.5}

    nbest = json.loads(json.dumps(with_odds.nbest()))
    assert [answer["text"] for answer in nbest["a"]] == ["cat", "the cat"]
    assert nbest["a"][0]["probability"] == pytest.approx(1 / (1 + math.exp(-1)))
    places = {"start_char": 2, "end_char": 5, "start_log_prob": 0.0, "end_log_prob": 0.0}
    assert nbest["b"] == [{"text": "dog", "probability": 1.0, **places}]


@pytest.fixture(scope="module")
def squad(real_data):
    return real_data / "squad"


def read_predictions(squad, name):
    return json.loads((squad / "predictions" / name).read_text())


def test_real_predictions_of_squad_1(squad):
    questions = read_squad(str(squad / "dev-v1.1.json"), version="1.1", flag="x", need_answers=True)
    given = read_predictions(squad, "v1.1-logistic-regression.json")
    assert len([q for q in questions if q.id not in given]) == 13
    result = squad_answers.score_v1(questions, given)
    assert result["exact_match"] == pytest.approx(40.14191106906339, abs=1e-9)
    assert result["f1"] == pytest.approx(50.98153647324461, abs=1e-9)


def test_real_predictions_of_squad_2(squad):
    path = str(squad / "dev-v2.0.rebuilt.json")
    questions = read_squad(path, version="2.0", flag="x", need_answers=True)
    given = read_predictions(squad, "v2.0-predictions.json")
    result = score_v2(questions, given, read_predictions(squad, "v2.0-null-odds.json"), 1.0)
    expected = {
        "exact": 83.13821275162132,
        "f1": 86.30317740069837,
        "best_exact": 84.27524635728123,
        "best_f1": 87.20515458088056,
        "best_exact_thresh": -5.604948997497559,
        "best_f1_thresh": -5.604948997497559,
    }
    for name, value in expected.items():
        assert result[name] == pytest.approx(value, abs=1e-9), name
    assert (result["total"], result["HasAns_total"], result["NoAns_total"]) == (11873, 5928, 5945)
