"""The predictors of the page, in JavaScript, give the answers of those in Python, of every kind of model."""

import numpy as np
import pytest

from albert_tf import load_predictor
from albert_tf.formats.pretrained import weights_of
from albert_tf.serving import graph_engines, onnx_files
from albert_tf.serving.page.offline import model_data
from albert_tf.text.rules import TokenizerRules
from tests.serving.conftest import items_of, random_texts
from tests.serving.page import node

pytestmark = pytest.mark.skipif(not node.PROGRAM, reason="Node is not installed")


def asked(predictor, items, tmp_path):
    """The answers that the page gives to items."""
    model = predictor.model
    contents = onnx_files.convert(weights_of(model))

    def compute(file, inputs):
        return graph_engines.PLAIN.compile(contents[f"{file}.onnx"], 0)(inputs)

    data = model_data(predictor, contents, "test")
    return node.answers(data, predictor.tokenizer, items, compute, tmp_path)


def check_same(answer, expected):
    """Checks that two answers are equal but for the last digits of numbers; the page has no other keys."""
    if isinstance(expected, dict):
        for key in answer:
            check_same(answer[key], expected[key])
    elif isinstance(expected, list) and expected and not isinstance(expected[0], float):
        assert len(answer) == len(expected)
        for found, other in zip(answer, expected, strict=True):
            check_same(found, other)
    elif isinstance(expected, str):
        assert answer == expected
    else:
        np.testing.assert_allclose(answer, expected, rtol=2e-4, atol=2e-5)


@pytest.mark.filterwarnings("ignore:.* cut at --max_query_length:UserWarning")
@pytest.mark.parametrize(
    "kind",
    [
        "pretrained",
        "pairs",
        "score",
        "labels",
        "vectors",
        "embedder",
        "tags",
        "choices",
        "span",
        "span_or_none",
    ],
)
def test_every_kind_of_model_has_the_same_answers(kind, sources, tmp_path):
    predictor = load_predictor(sources(kind), engine="tensorflow")
    items = items_of(kind)
    if kind == "choices":  # as the page calls it
        items = [{"article": item["context"], **item} for item in items]
        for item in items:
            del item["context"]
    if kind in ("tags", "embedder", "pretrained"):
        items += ["Été, on (a mat): 中文 the cat's\u200b \u0301x...", "a  dog\tran\n" * 9]
    if kind == "pretrained":  # a tab is a part of a text there
        items = [item for item in items if "\t" not in item]
        items += ["[MASK]s [MASK] ran.", "the[MASK]", {"text_a": "the cat", "text_b": "a dog ran"}]
    expected = predictor.predict(items)
    answers = asked(predictor, items, tmp_path)
    assert len(answers) == len(items)
    for answer, of_python in zip(answers, expected, strict=True):
        assert isinstance(answer, dict), answer
        assert answer.keys() == of_python.keys() - {"text"}
        check_same(answer, of_python)
    assert kind != "tags" or any(answer["entities"] for answer in answers)


@pytest.mark.parametrize("length", [4, 9, 10])
def test_pairs_for_a_model_of_others_are_cut_as_in_python(length, sources, tmp_path):
    predictor = load_predictor(sources("pairs"), engine="tensorflow", max_seq_length=length)
    of_others = TokenizerRules(finds_special_tokens=True)
    own = predictor.tokenizer
    predictor.tokenizer = type(own)(own.content, rules=of_others, **own.cleaning)
    lengths = [(5, 5), (3, 9), (9, 3), (1, 9)]
    items = [{"text_a": "the " * a, "text_b": "cat " * b} for a, b in lengths]
    expected = predictor.answered(list(map(predictor.check, items)))
    for answer, of_python in zip(asked(predictor, items, tmp_path), expected, strict=True):
        check_same(answer, of_python)


def test_long_texts_are_read_in_windows(sources, tmp_path):
    predictor = load_predictor(sources("pairs"), engine="tensorflow")
    predictor.read_in_windows(True)
    texts = [" ".join(random_texts(seed, 9)) for seed in range(3)] + [""]
    expected = predictor.predict(texts)
    for answer, of_python in zip(asked(predictor, texts, tmp_path), expected, strict=True):
        check_same(answer, of_python)
    assert predictor.predict(texts[:1]) != load_predictor(sources("pairs")).predict(texts[:1])


def test_a_mask_that_is_cut_is_an_error(sources, tmp_path):
    predictor = load_predictor(sources("pretrained"), engine="tensorflow")
    [message] = asked(predictor, ["the cat " * 40 + "[MASK]"], tmp_path)
    assert message == "A [MASK] is not among the 29 tokens that the model reads."
