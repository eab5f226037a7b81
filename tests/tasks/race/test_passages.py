"""RACE: hand-made passages and sequences, wrong files, real data."""

import dataclasses
import json
import unicodedata

import numpy as np
import pytest
import sentencepiece

from albert_tf.core.errors import UserError
from albert_tf.data.feature_table import FeatureTable
from albert_tf.tasks.race.passages import RaceQuestion, RaceSettings, make_race_features, read_race
from albert_tf.text.tokenizer import Tokenizer
from tests.helpers import train_spm, write_files

BIRD = {
    "id": "high7.txt",
    "article": "A bird sat in the tree. It sang a song.",
    "questions": ["The bird sat in the  _  .", "What did it sing?"],
    "options": [["tree", "house", "sea", "old red car"], ["A song", "Nothing", "A poem", "News"]],
    "answers": ["A", "D"],
}
FISH = {
    "id": "middle30.txt",
    "article": "The fish swims.",
    "questions": ["Who swims?"],
    "options": [["the bird", "the fish", "Ann", "nobody"]],
    "answers": ["B"],
}


def archive(**passages) -> dict[str, str]:
    """Files of the training data, by their paths; "high_7" is train/high/7.txt."""
    names = {key: key.replace("_", "/") for key in passages}
    return {f"train/{names[key]}.txt": json.dumps(value) for key, value in passages.items()}


def read(folder, files, split="train", **options) -> list[RaceQuestion]:
    write_files(folder, files)
    options = {"level": "all", "need_answers": True, **options}
    return read_race(str(folder), split, **options)


def without(passage: dict, *keys: str) -> dict:
    return {key: value for key, value in passage.items() if key not in keys}


def test_questions_are_read(tmp_path):
    files = archive(high_7=BIRD, middle_30=FISH)
    questions = read(tmp_path, files)
    ids = ["middle/30.txt/0", "high/7.txt/0", "high/7.txt/1"]
    assert [question.id for question in questions] == ids
    assert read(tmp_path, files, level="middle") == questions[:1]
    assert read(tmp_path, files, level="high") == questions[1:]
    assert questions[2] == RaceQuestion(
        id="high/7.txt/1",
        level="high",
        article="A bird sat in the tree. It sang a song.",
        question="What did it sing?",
        options=("A song", "Nothing", "A poem", "News"),
        answer=3,
    )


def test_answers_are_optional_for_predictions(tmp_path):
    files = archive(high_7=without(BIRD, "answers"), middle_30=without(FISH, "answers"))
    assert [q.answer for q in read(tmp_path, files, need_answers=False)] == [None] * 3
    files = archive(high_7=BIRD, middle_30=FISH)
    assert [q.answer for q in read(tmp_path, files, need_answers=False)] == [1, 0, 3]
    files = archive(high_7=BIRD, middle_30=without(FISH, "answers"))
    assert [q.answer for q in read(tmp_path, files, need_answers=False)] == [None] * 3


WRONG = {
    "not_json": ('{"article": ', r"high/7.txt: not .*JSON .*char"),
    "list": ([BIRD], "high/7.txt: expected a JSON object"),
    "no_answers": (without(BIRD, "answers"), "high/7.txt: is not a passage .*KeyError: 'answers'"),
    "questions_string": ({**BIRD, "questions": "What?"}, "is not a passage of RACE"),
    "fewer_answers": ({**BIRD, "answers": ["A"]}, "is not a passage of RACE"),
    "one_option": ({**BIRD, "options": [["x"]] * 2}, "expected from 2 to 26 options, got 1"),
    "too_many": ({**BIRD, "options": [["x"] * 27] * 2}, "expected from 2 to 26 options, got 27"),
    "answer_d_of_three": (
        {**BIRD, "options": [["x"] * 3] * 2},
        "question 1: .* from A to C, got 'D'",
    ),
    "options_not_listed": ({**BIRD, "options": [5, 6]}, "is not a passage of RACE"),
    "answer_e": ({**BIRD, "answers": ["A", "E"]}, "is not a passage of RACE"),
    "two_answers": ({**BIRD, "answers": ["A", "BC"]}, "question 1: .* from A to D, got 'BC'"),
    "answer_empty": ({**BIRD, "answers": ["A", ""]}, "question 1: .* from A to D, got ''"),
    "answer_index": ({**BIRD, "answers": [0, 3]}, "is not a passage of RACE"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_files_are_named_in_one_line(tmp_path, case):
    content, message = WRONG[case]
    content = content if isinstance(content, str) else json.dumps(content)
    with pytest.raises(UserError, match=message) as caught:
        read(tmp_path, {"train/high/7.txt": content}, level="high")
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match=rf"--data_dir={tmp_path}: has no folder dev"):
        read(tmp_path, {}, split="dev")


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory) -> Tokenizer:
    """A tokenizer of words as in the passages above."""
    words = "the bird sat in tree it sang song what did sing old red car house sea who fish swims"
    sentences = [f"{word} {other} ." for word in words.split() for other in words.split()]
    path = tmp_path_factory.mktemp("race") / "spiece.model"
    options = {"vocab_size": 70, "user_defined_symbols": ["_"], "hard_vocab_limit": False}
    return Tokenizer.from_file(train_spm(path, sentences, **options))


def question(**changes) -> RaceQuestion:
    options = tuple(BIRD["options"][0])
    article = BIRD["article"]
    whole = RaceQuestion("high/7.txt/0", "high", article, BIRD["questions"][0], options, 0)
    return dataclasses.replace(whole, **changes)


def texts(table: FeatureTable, tokenizer: Tokenizer, row: int) -> tuple[str, str]:
    """The texts of a sequence's two segments, after checking where the special pieces are."""
    ids = table.sequence("input_ids", row)
    segments = table.sequence("segment_ids", row)
    (first_end, second_end) = np.flatnonzero(ids == tokenizer.sep_id)
    assert ids[0] == tokenizer.cls_id
    assert np.sum(ids == tokenizer.cls_id) == 1
    assert second_end == len(ids) - 1
    assert segments.tolist() == [0] * (first_end + 1) + [1] * (second_end - first_end)
    return tokenizer.decode(ids[: first_end + 1]), tokenizer.decode(ids[first_end + 1 :])


def test_four_sequences_a_question(tokenizer):
    table = make_race_features(RaceSettings(tokenizer, 64), [question()])
    assert (len(table), table.choices, len(table.row_splits)) == (1, 4, 5)
    article = "a bird sat in the tree. it sang a song."
    assert table.columns["label_ids"].tolist() == [[0]]
    assert table.columns["is_high"].tolist() == [[1]]
    unlabelled = make_race_features(RaceSettings(tokenizer, 64), [question(answer=None)])
    assert set(unlabelled.columns) == {"is_high"}
    assert [texts(table, tokenizer, row) for row in range(4)] == [
        (article, f"the bird sat in the {option} .")
        for option in ("tree", "house", "sea", "old red car")
    ]


def test_a_question_with_fewer_options_has_empty_places(tokenizer):
    settings = RaceSettings(tokenizer, 64)
    three = question(options=("tree", "sea", "house"), answer=2)
    four = question()
    table = make_race_features(settings, [three, four])
    assert (len(table), table.choices) == (2, 4)
    assert [texts(table, tokenizer, row)[1] for row in (0, 1, 2, 4)] == [
        f"the bird sat in the {option} ." for option in ("tree", "sea", "house", "tree")
    ]
    assert table.sequence("input_ids", 3).tolist() == [tokenizer.cls_id]
    assert table.columns["label_ids"].tolist() == [[2], [0]]
    alone = make_race_features(settings, [three])
    assert alone.choices == 3
    for name, lengths in alone.uncut_lengths.items():
        assert table.uncut_lengths[name][0] == lengths[0]
    wide = make_race_features(settings, [dataclasses.replace(three, num_places=5)])
    assert wide.choices == 5


def test_the_article_is_cut_at_its_end_to_fit(tokenizer):
    whole = make_race_features(RaceSettings(tokenizer, 64), [question()])
    length = int(whole.lengths[0]) - 3
    table = make_race_features(RaceSettings(tokenizer, length), [question()])
    for row in range(4):
        ids = whole.sequence("input_ids", row)
        cut = table.sequence("input_ids", row)
        missing = max(0, len(ids) - length)
        assert len(cut) == len(ids) - missing
        end = np.flatnonzero(ids == tokenizer.sep_id)[0]
        assert cut.tolist() == [*ids[: end - missing], *ids[end:]]
    assert table.lengths[0] == length


def test_gaps_are_found_after_cleaning(tokenizer):
    table = make_race_features(
        RaceSettings(tokenizer, 64), [question(question="The ＿ sang", options=("BIRD",) * 4)]
    )
    assert texts(table, tokenizer, 0)[1] == "the bird sang"


def independent_features(processor, passage: dict, number: int, length: int, most: int) -> list:
    """(ids, segments) of each option of a question, written from the rules and SentencePiece alone."""

    def cleaned(text: str) -> str:
        text = unicodedata.normalize("NFKD", " ".join(text.split()))
        return "".join(char for char in text if not unicodedata.combining(char)).lower()

    def encode(text: str) -> list[int]:
        ids = []
        for piece in processor.encode(text, out_type=str):
            pieces = [piece]
            if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
                number = piece[:-1].replace("▁", "")
                pieces = [*processor.encode(number, out_type=str), ","]
            ids += map(processor.piece_to_id, pieces)
        return ids

    article = encode(cleaned(passage["article"]))
    text = cleaned(passage["questions"][number])
    features = []
    for option in map(cleaned, passage["options"][number]):
        last = encode(option.join(text.split("_")) if "_" in text else f"{text} {option}")[-most:]
        first = article[: length - 3 - len(last)]
        ids = [2, *first, 3, *last, 3]
        features.append((ids, [int(position > len(first) + 1) for position in range(len(ids))]))
    return features


@pytest.mark.parametrize("length, most", [(512, 128), (200, 20)])
def test_real_passages_equal_an_independent_implementation(
    real_data, released_model_file, length, most
):
    settings = RaceSettings(Tokenizer.from_file(released_model_file), length, most)
    options = {"level": "all", "need_answers": True}
    questions = read_race(str(real_data / "race"), "dev", **options)
    assert len(questions) == 4887
    chosen = questions[::15]
    table = make_race_features(settings, chosen)
    processor = sentencepiece.SentencePieceProcessor(model_file=released_model_file)
    for index, question in enumerate(chosen):
        level, name, number = question.id.split("/")
        passage = json.loads((real_data / "race" / "dev" / level / name).read_text())
        found = [
            (table.sequence("input_ids", row).tolist(), table.sequence("segment_ids", row).tolist())
            for row in range(4 * index, 4 * index + 4)
        ]
        assert found == independent_features(processor, passage, int(number), length, most)
        assert "ABCD"[table.columns["label_ids"][index, 0]] == passage["answers"][int(number)]
        assert table.columns["is_high"][index, 0] == passage["id"].startswith("high")
