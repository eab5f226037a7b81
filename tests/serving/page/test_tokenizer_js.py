"""The tokenizer of the page, in JavaScript, gives the ids and offsets of that in Python."""

import json
import shutil

import pytest

from albert_tf.text.rules import TokenizerRules
from albert_tf.text.tokenizer import Tokenizer
from lab.many_scripts import made_up_texts
from tests.helpers import ROOT, train_spm
from tests.serving.page import node

pytestmark = pytest.mark.skipif(not node.PROGRAM, reason="Node is not installed")

SENTENCES = [
    "the cat sat on a mat, late.",
    "a dog ran to the old house (1999), it was cold - why?",
    "été À la ﬁn 中文 1, 2,",
]


def check_equal(tokenizer, texts, tmp_path):
    tokens = node.tokenized(tokenizer, texts, tmp_path)
    assert len(tokens) == len(texts)
    for text, (ids, spans) in zip(texts, tokens, strict=True):
        expected = tokenizer.encode_with_offsets(text)
        assert (text, ids) == (text, list(expected[0]))
        assert (text, spans) == (text, list(expected[1]))


@pytest.mark.parametrize("options", [{}, {"do_lower_case": False}, {"keep_accents": True}])
@pytest.mark.parametrize("file", ["albert-minilm-l6/vocab.txt", "albert-tiny-docs/spiece.model"])
def test_texts_of_many_scripts_have_the_same_tokens(file, options, tmp_path):
    tokenizer = Tokenizer.from_file(ROOT / "models" / file, **options)
    check_equal(tokenizer, made_up_texts(2000 if not options else 300), tmp_path)


@pytest.mark.parametrize(
    "settings",
    [
        {"byte_fallback": True, "vocab_size": 330},
        {"normalization_rule_name": "identity"},
        {"normalization_rule_name": "nmt_nfkc_cf"},
        {"remove_extra_whitespaces": False},
        {"add_dummy_prefix": False},
        {"treat_whitespace_as_suffix": True},
        {"user_defined_symbols": ["ca", "<x>", "é", "a▁d"]},
        {"split_by_number": False, "split_by_whitespace": False},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_every_kind_of_unigram_model_has_the_same_tokens(settings, tmp_path):
    options = {"vocab_size": 90, "hard_vocab_limit": False, **settings}
    tokenizer = Tokenizer.from_file(train_spm(tmp_path / "m.model", SENTENCES * 9, **options))
    texts = [*made_up_texts(150), *SENTENCES, "a dca t<x>  <x>", " ", ""]
    check_equal(tokenizer, texts, tmp_path)


@pytest.mark.parametrize("is_of_others", [True, False])
@pytest.mark.parametrize("file", ["albert-minilm-l6/vocab.txt", "albert-tiny-docs/spiece.model"])
def test_added_and_special_tokens_are_found(file, is_of_others, tmp_path):
    shutil.copy(ROOT / "models" / file, tmp_path)
    path = tmp_path / file.rpartition("/")[2]
    size = Tokenizer.from_file(path).vocab_size
    added = {"Straße K": True, "[E1]": False, "s1": True, "ΑΣ": True}
    described = {
        str(size + number): {"content": text, "normalized": is_plain}
        for number, (text, is_plain) in enumerate(added.items())
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": described}))
    rules = TokenizerRules(finds_special_tokens=is_of_others)
    tokenizer = Tokenizer.from_file(path, rules=rules)
    assert len(tokenizer.added_tokens) == len(added)
    texts = [
        "a straSSe k STRASSE K strAße \u212a",
        "[E1] [e1]",
        "ſ1 S1s1 s1",
        "ασ ας ΑΣ",
        "a [SEP]\tb",
        " s1  s1 [E1] s1 a [SEP] s1",
        "s1 [E1]  [E1] . s1 [SEP]",
        " [E1] \u00b4 s1",
    ]
    texts += [f"{text}{end}" for text in made_up_texts(50) for end in (" s1", " [E1]", "[SEP] ")]
    check_equal(tokenizer, texts, tmp_path)
