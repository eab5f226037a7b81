"""Texts -> sequences of a classifier, and a task of the user's own in a TSV file."""

import itertools
import json

import numpy as np
import pandas
import pytest

from albert_tf.core.errors import UserError
from albert_tf.tasks.classification.settings import ClassifierConfig
from albert_tf.tasks.classification.source import TextSource
from albert_tf.tasks.classification.text_pairs import (
    TextExample,
    TextFeatureSettings,
    make_pair_features,
    make_text_features,
    mean_of_windows,
)
from albert_tf.tasks.classification.tsv import find_labels, read_own, with_values
from albert_tf.tasks.sequences import PairSettings
from albert_tf.text.model_inputs import kept_lengths
from albert_tf.text.rules import TokenizerRules
from albert_tf.text.tokenizer import Tokenizer
from tests.helpers import train_spm

WORDS = ["the cat sat on the mat", "a dog ran to the old house", "it was late and cold there"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("spm") / "spiece.model"
    return Tokenizer.from_file(train_spm(path, WORDS * 5, vocab_size=29))


def features_of(tokenizer, examples, max_seq_length=64):
    return make_pair_features(PairSettings(tokenizer, max_seq_length), examples)


def own(path, labels=None, label_separator="", **changes):
    """The examples of a table and, unless they are given, its labels."""
    arguments = {"text_columns": ["text"], "flag": "train_file", "label_columns": ["y"]}
    examples = read_own(str(path), **{**arguments, **changes})
    if labels is None:
        labels = find_labels(examples, str(path), label_separator)
    return with_values(examples, str(path), labels, label_separator), labels


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_sequences_of_one_text_and_of_two(tokenizer):
    table = features_of(tokenizer, [TextExample("7", "the cat"), TextExample("8", "a dog", "cold")])
    cat, dog, cold = map(tokenizer.encode, ("the cat", "a dog", "cold"))
    assert table.sequence("input_ids", 0).tolist() == [2, *cat, 3]
    assert table.sequence("segment_ids", 0).tolist() == [0] * (len(cat) + 2)
    assert table.sequence("input_ids", 1).tolist() == [2, *dog, 3, *cold, 3]
    assert table.sequence("segment_ids", 1).tolist() == [0] * (len(dog) + 2) + [1] * (len(cold) + 1)
    assert not table.columns


@pytest.mark.parametrize("second", ["", "  ", "\u0301"], ids=["empty", "space", "accent"])
def test_a_second_text_without_tokens_counts_as_none(tokenizer, second):
    pair = TextExample("0", WORDS[0], second)
    single = TextExample("1", WORDS[0])
    table = features_of(tokenizer, [pair, single], max_seq_length=9)
    assert np.array_equal(table.sequence("input_ids", 0), table.sequence("input_ids", 1))
    assert table.lengths.tolist() == [9, 9]


def test_kept_lengths_equal_dropping_token_by_token():
    for num_a, num_b, length in itertools.product(range(12), range(12), range(4, 27)):
        a = num_a
        b = num_b
        room = length - (3 if num_b else 2)
        while a + b > room:  # the original's rule
            a, b = (a - 1, b) if a > b else (a, b - 1)
        assert kept_lengths(num_a, num_b, length) == (a, b), (num_a, num_b, length)


# Lengths of two texts -> what tokenizers 0.23.3 keeps of them in a sequence of 8 tokens ("longest_first").
KEPT_BY_TRANSFORMERS = {
    (1, 9): (1, 4),
    (2, 3): (2, 3),
    (2, 9): (2, 3),
    (3, 2): (3, 2),
    (3, 3): (2, 3),
    (3, 9): (2, 3),
    (5, 5): (2, 3),
    (8, 9): (2, 3),
    (9, 1): (4, 1),
    (9, 2): (3, 2),
    (9, 3): (3, 2),
    (9, 8): (3, 2),
}


def test_pairs_for_a_model_of_others_are_cut_as_in_transformers():
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
    rules = TokenizerRules(finds_special_tokens=True)
    of_others = Tokenizer.from_bytes("\n".join(tokens).encode(), rules=rules)
    for (num_a, num_b), kept in KEPT_BY_TRANSFORMERS.items():
        assert kept_lengths(num_a, num_b, 8, rest_to_longer=True) == kept
        texts = (" ".join(["a"] * num_a), " ".join(["b"] * num_b))
        table = features_of(of_others, [TextExample("", *texts)], max_seq_length=8)
        ids = table.sequence("input_ids", 0).tolist()
        assert (ids.count(5), ids.count(6)) == kept
        assert of_others(*texts, max_length=8)["input_ids"][0].tolist() == ids


def test_labels_and_scores_are_columns(tokenizer):
    labelled = features_of(tokenizer, [TextExample(id, "a", label=2 - 2 * int(id)) for id in "01"])
    assert labelled.columns["label_ids"].tolist() == [[2], [0]]
    assert labelled.columns["label_ids"].dtype == np.int32
    scored = features_of(tokenizer, [TextExample("0", "a", label=2.0)] * 3)
    assert list(scored.columns) == ["label_scores"]
    assert scored.columns["label_scores"].tolist() == [[2.0]] * 3
    assert scored.columns["label_scores"].dtype == np.float32


def test_windows_overlap_by_half_and_their_mean_is_that_of_the_text(tokenizer):
    texts = [" ".join(WORDS), "", "a dog"]
    examples = [TextExample(str(i), text, label=i) for i, text in enumerate(texts)]
    table = make_text_features(TextFeatureSettings(tokenizer, 12, windows=True), examples)
    ids = tokenizer.encode(texts[0])
    counts = [1 + max(0, -(-(len(ids) - 10) // 5)), 1, 1]
    assert len(ids) > 30 and len(table) == sum(counts)
    for window in range(counts[0]):
        expected = [2, *ids[window * 5 : window * 5 + 10], 3]
        assert table.sequence("input_ids", window).tolist() == expected
    assert table.columns["label_ids"][:, 0].tolist() == np.repeat([0, 1, 2], counts).tolist()
    assert table.uncut_lengths["max_seq_length"].tolist() == [
        len(tokenizer.encode(text)) + 2 for text in texts
    ]
    values = np.arange(2 * len(table), dtype=np.float32).reshape(-1, 2) ** 2
    expected = [part.mean(axis=0) for part in np.split(values, np.cumsum(counts)[:-1])]
    np.testing.assert_allclose(mean_of_windows(table, values), expected, rtol=1e-6)
    np.testing.assert_allclose(mean_of_windows(table, values[:, 1]), [e[1] for e in expected])
    halves = [make_text_features(TextFeatureSettings(tokenizer, 12, True), [e]) for e in examples]
    assert type(table).concatenate(halves).sha256() == table.sha256()


def test_columns_are_found_by_name_in_any_order(tmp_path):
    path = write(tmp_path / "own.tsv", "b\tscore\tunused\tname\ta \nsecond\t-1.5e1\t?\tx9\tfirst\n")
    columns = {"text_columns": ["a", "b"], "label_columns": ["score"]}
    ([example], _) = own(path, labels=(), **columns)
    assert example == TextExample("0", "first", "second", -15.0, "", "row 1 (line 2)")
    with pytest.raises(UserError, match="has no column 'n'"):
        own(path, **{**columns, "label_columns": ["n"]})


def test_found_labels_are_in_order(tmp_path):
    path = write(tmp_path / "numbers.tsv", "y\ttext\n10\ta\n2 \tb\n1\tc\n2\td\n-1\te\n")
    examples, labels = own(path)
    assert labels == ("-1", "1", "2", "10")
    assert [example.label for example in examples] == [3, 2, 1, 2, 0]
    path = write(tmp_path / "words.tsv", "y\ttext\nspam\ta\n10\tb\nham\tc\n")
    assert own(path)[1] == ("10", "ham", "spam")


def test_labels_in_lists_need_no_separator(tmp_path):
    rows = [{"y": ["b ", "a"], "text": "one"}, {"y": [], "text": "two"}, {"y": "a;c", "text": "x"}]
    path = write(tmp_path / "own.jsonl", "\n".join(map(json.dumps, rows)))
    found, labels = own(path, label_separator=";")
    assert labels == ("a", "b", "c")
    assert [example.label for example in found] == [(1, 1, 0), (0, 0, 0), (1, 0, 1)]
    with pytest.raises(
        UserError, match=r"own.jsonl: row 1 \(line 1\): expected one label, got a list of 2"
    ):
        own(path)


WRONG = {  # the column of labels -> what the line says about it
    "good good": "expected two labels or more in --label_column, got only 'good'",
    "good \t": "row 2 (line 3): has no label",
    "good;x good;;bad": "row 2 (line 3): expected labels with ';' between them, got 'good;;bad'",
    "good good, bad": "every row has one label, such as ",
    "1 nan": "row 2 (line 3): expected a number as score, got 'nan'",
    "1 1,5": "row 2 (line 3): expected a number as score, got '1,5'",
    "1 1_5": "row 2 (line 3): expected a number as score, got '1_5'",
}


@pytest.mark.parametrize("labels", WRONG)
def test_wrong_labels_are_named_in_one_line(tmp_path, labels):
    rows = "".join(f"text\t{label}\n" for label in labels.split(" "))
    path = write(tmp_path / "own.tsv", f"text\ty\n{rows.replace(chr(9) * 2, chr(9))}")
    separator = ";" if ";" in labels or "," in labels else ""
    with pytest.raises(UserError) as caught:
        own(path, () if labels.startswith("1") else None, separator)
    line = str(caught.value)
    assert WRONG[labels] in line and len(line.splitlines()) == 1 and str(path) in line


KINDS = {
    "t.csv": lambda frame, path: frame.to_csv(path, index=False),
    "t.jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
    "t.parquet": lambda frame, path: frame.to_parquet(path, index=False),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    ("values", "names"),
    {
        "bool": ([True, False, True], ("false", "true")),
        "int": ([1, 0, 1], ("0", "1")),
        "float": ([1.0, 2.5, 1.0], ("1", "2.5")),
        "with a missing label": ([1.0, 0.0, 1.0], ("0", "1")),
        "text": (["True", "FALSE", "true"], ("false", "true")),
        "numbers as text": (["1", "2.0", "1.0"], ("1", "2")),
        "leading zeros": (["007", "7", "007"], ("007", "7")),
    }.values(),
)
def test_a_label_has_the_same_name_in_every_format(name, values, names, tmp_path):
    frame = pandas.DataFrame({"text": ["a", "b", "c"], "y": values})
    KINDS[name](frame, tmp_path / name)
    examples, labels = own(tmp_path / name)
    assert labels == tuple(
        sorted(names, key=lambda label: (float(label) if label[0] < "a" else 0, label))
    )
    assert examples[0].label == examples[2].label != examples[1].label
    # A model of another project may have these names in its own way.
    found, _ = own(tmp_path / name, labels=[label.title() for label in labels])
    assert [example.label for example in found] == [example.label for example in examples]


@pytest.mark.parametrize(
    "cells",
    [
        ["['sport', 'food']", "['food']", "['sport']"],
        ['["sport", "food"]', '["food"]', '["sport"]'],
        ["('sport', 'food')", "('food',)", "sport"],
    ],
)
def test_lists_in_cells_of_csv_are_lists(cells, tmp_path):
    pandas.DataFrame({"text": "a", "y": cells}).to_csv(tmp_path / "t.csv", index=False)
    examples, labels = own(tmp_path / "t.csv", label_separator=",")
    assert labels == ("food", "sport")
    assert [example.label for example in examples] == [(1, 1), (1, 0), (0, 1)]


def test_a_name_in_brackets_is_one_label(tmp_path):
    path = write(tmp_path / "own.csv", "text,y\na,[pos]\nb,[very bad]\nc,['x']\n")
    assert own(path)[1] == ("[pos]", "[very bad]", "x")
    with pytest.raises(UserError, match="row 1 .* expected a list of Python or JSON"):
        own(write(path, "text,y\na,['a' 'b']\n"))


def test_lists_have_one_label_or_none(tmp_path):
    path = tmp_path / "t.csv"
    pandas.DataFrame({"text": "a", "y": ["['x']", "['y']", "{z}"]}).to_csv(path, index=False)
    assert own(path)[1] == ("x", "y", "{z}")
    cells = ["{'x', 'y'}", "set()"]
    pandas.DataFrame({"text": "a", "y": cells}).to_csv(path, index=False)
    assert [example.label for example in own(path, label_separator=",")[0]] == [(1, 1), (0, 0)]


@pytest.mark.parametrize(
    ("cells", "separator", "message"),
    [
        (["[0, 1, 0]", "[1, 0, 0]"], ",", "expected lists of labels, or a column of 0 and 1"),
        (["[0, 1]", "[1, 0]"], ",", "expected lists of labels, or a column of 0 and 1"),
        (["{'a': 1, 'b': 0}", "{}"], ",", "row 1 (line 2): expected a list of Python or JSON"),
        (['{"a": true}', "b"], "", "row 1 (line 2): expected a list of Python or JSON"),
        (["[0 1 0]", "[1 0 0]"], ",", "row 1 (line 2): expected a list of Python or JSON"),
        (["['a' 'b']", "['a']"], ",", "row 1 (line 2): expected a list of Python or JSON"),
        (["['a', 'b']", "['a']"], "", "row 1 (line 2): expected one label, got a list of 2"),
        (["x\ty", "z"], "", "has a tab or a line break in the label 'x\\ty'"),
        (["p\nq", "z"], "", "has a tab or a line break in the label 'p\\nq'"),
    ],
)
def test_other_cells_of_labels_are_rejected(cells, separator, message, tmp_path):
    pandas.DataFrame({"text": "a", "y": cells}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(UserError) as caught:
        own(tmp_path / "t.csv", label_separator=separator)
    assert message in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_columns_of_0_and_1_are_labels(tmp_path):
    frame = pandas.DataFrame({"text": ["a", "b"], "sport": [1, 0], "food": [True] * 2, "x": [2, 0]})
    KINDS["t.csv"](frame, tmp_path / "t.csv")
    names = ["sport", "food"]
    found, _ = own(tmp_path / "t.csv", names, ",", label_columns=names)
    assert [example.label for example in found] == [(1, 1), (0, 1)]
    with pytest.raises(
        UserError, match=r"row 1 \(line 2\): expected 0 or 1 in the label column 'x'"
    ):
        own(tmp_path / "t.csv", names, ",", label_columns=[*names, "x"])
    source = TextSource(
        ClassifierConfig(
            task_name="csv",
            train_file=str(tmp_path / "t.csv"),
            text_columns="text",
            label_column="sport, food",
        )
    )
    examples = source.read("train")
    assert source.labels == ("sport", "food") and source.is_multi_label
    assert [example.label for example in examples] == [(1, 1), (0, 1)]
