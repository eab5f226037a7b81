"""Folders for keras-hub: a vocabulary that cleans text by itself; and what keras-hub computes, if it is installed."""

import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest
import sentencepiece

from albert_tf import Tokenizer, load_pretrained, save_pretrained
from albert_tf.formats.keras_hub import folded
from albert_tf.model.heads import AlbertForSequenceClassification, AlbertForSpan
from tests.helpers import ROOT, TINY, error_of, noisy
from tests.text.texts import CHINESE_LINES, LINES, train, write_vocabulary

SCRIPTS = [
    *("Привет, МИР! ёлка Ёж", "Ελληνικά ΌΜΗΡΟΣ", "العربية مُحَمَّد", "हिन्दी में", "বাংলা কোনো", "தமிழ் கோ"),
    *(
        "ภาษาไทย น้ำ",
        "한국어 서울의 날씨 각힣 ㅋㅋㅋ",
        "שָׁלוֹם",
        "Tiếng Việt",
        "ｶﾞ ガギグ",
        "ŁÓDŹ ÆRØ İstanbul GROẞ",
    ),
    *("A [MASK] in a [MASK].", "The CAT, [CLS] and [SEP]", "1,000, 2,500, in 1999, and 12,"),
]


def thousand_texts() -> list[str]:
    """Capitals, accents, literals of special tokens, many scripts, numbers with commas."""
    rng = random.Random(5)
    words = " ".join(["THE Cat sat On É £5 – €7, (x) “y” it's", *LINES, *SCRIPTS, *CHINESE_LINES])
    return [" ".join(rng.choices(words.split(), k=rng.randint(1, 12))) for _ in range(1000)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return Tokenizer.from_file(train(tmp_path_factory.mktemp("vocabulary") / "a.model"))


@pytest.fixture(scope="module")
def folder(tokenizer, tmp_path_factory):
    """A classifier for keras-hub."""
    folder = tmp_path_factory.mktemp("keras_hub") / "model"
    config = TINY.replace(vocab_size=tokenizer.vocab_size).with_labels(["a", "b", "c"], "tsv")
    model = noisy(AlbertForSequenceClassification(config, seed=3))
    save_pretrained(model, folder, format="keras_hub", spm_model_file=tokenizer)
    return folder


def assert_same_ids(found, tokenizer, texts):
    """Equal, but for the last sigma of a word, and for two segmentations with one score."""
    expected = [ids.tolist() for ids in tokenizer.encode_batch(texts)]
    different = [text for text, a, b in zip(texts, expected, found, strict=True) if a != b]
    others = [text for text in different if "Σ" not in text and not set(text) & set("0123456789")]
    assert not others
    assert len(different) <= len(texts) // 20


@pytest.mark.slow
def test_the_vocabulary_cleans_text_by_itself(folder, tokenizer):
    texts = thousand_texts()
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model"))
    assert_same_ids([model.encode(text) for text in texts], tokenizer, texts)
    plain = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.content)
    changed = sum(plain.encode(text) != model.encode(text) for text in texts)
    assert changed > 300
    # The folder is read here with the same ids, and cleaning twice changes nothing.
    again = Tokenizer.from_pretrained(folder)
    assert_same_ids([ids.tolist() for ids in again.encode_batch(texts)], tokenizer, texts)


@pytest.mark.slow
def test_a_vocabulary_that_keeps_case_and_accents_keeps_them(tmp_path):
    path = train(tmp_path / "a.model", ["Café Über THE cat, naïve é"] * 50, vocab_size=40)
    tokenizer = Tokenizer.from_file(path, do_lower_case=False, keep_accents=True)
    model = sentencepiece.SentencePieceProcessor(model_proto=folded(tokenizer))
    texts = ["Café Über THE cat", "cafe uber", "  naïve \u2028 É\tx"]
    assert [model.encode(text) for text in texts] == [tokenizer.encode(text) for text in texts]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "relu"}, "has hidden_act=relu"),
        ({"hidden_act": "gelu_exact"}, "has hidden_act=gelu_exact"),
        ({"layer_norm_eps": 1e-5}, "has layer_norm_eps=1e-05"),
        ({"embedding_size": 20, "share_parameters": "none"}, "is a BERT"),
    ],
)
def test_what_keras_hub_cannot_compute_is_one_line(changes, message, tmp_path):
    config = TINY.replace(**changes).with_labels(["a", "b"], "tsv")
    model = AlbertForSequenceClassification(config)
    assert message in error_of(save_pretrained, model, tmp_path / "model", "keras_hub")
    assert not (tmp_path / "model").exists()


def test_a_model_without_pooler_or_sentencepiece_is_one_line(tmp_path):
    line = error_of(save_pretrained, AlbertForSpan(TINY), tmp_path / "model", "keras_hub")
    assert "has no trained pooler" in line
    vocabulary = Tokenizer.from_file(write_vocabulary(tmp_path / "vocab.txt"))
    config = TINY.replace(vocab_size=vocabulary.vocab_size).with_labels(["a", "b"], "tsv")
    model = AlbertForSequenceClassification(config)
    line = error_of(save_pretrained, model, tmp_path / "model", "keras_hub", vocabulary)
    assert "has no SentencePiece vocabulary" in line


# In a process of its own, because it uses Keras 3.
THEIRS = """
import json, sys
import keras_hub, numpy as np
from safetensors.numpy import load_file
folder, texts = sys.argv[1], json.load(open(sys.argv[2]))
classifier = keras_hub.models.AlbertTextClassifier.from_preset(folder, num_classes=3)
head = load_file(f"{folder}/model.safetensors")
classifier.output_dense.set_weights([head["classifier.weight"].T, head["classifier.bias"]])
tokenizer = classifier.preprocessor.tokenizer
ids = tokenizer(texts)
ids = ids.to_list() if hasattr(ids, "to_list") else ids
features = {"token_ids": np.array([[2, 9, 30, 31, 3, 0], [2, 14, 3, 50, 60, 3]])}
features["padding_mask"] = (features["token_ids"] > 0).astype(int)
features["segment_ids"] = np.array([[0] * 6, [0, 0, 0, 1, 1, 1]])
outputs = classifier.backbone.predict(features, verbose=0)
found = {name: np.asarray(outputs[name]).tolist() for name in ("sequence_output", "pooled_output")}
found["logits"] = np.asarray(classifier.predict_on_batch(features)).tolist()
found["ids"] = [[int(id) for id in row] for row in ids]
json.dump(found, open(sys.argv[3], "w"))
"""


@pytest.mark.slow
def test_keras_hub_has_the_same_ids_outputs_and_with_its_head_logits(folder, tokenizer, tmp_path):
    pytest.importorskip("keras_hub")
    texts = thousand_texts()
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    paths = [str(folder), str(tmp_path / "texts.json"), str(tmp_path / "found.json")]
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_USE_LEGACY_KERAS": "0"}
    command = [sys.executable, "-c", THEIRS, *paths]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=600)
    found = json.loads((tmp_path / "found.json").read_text())
    assert_same_ids(found["ids"], tokenizer, texts)
    model = load_pretrained(folder)
    ids = np.array([[2, 9, 30, 31, 3, 0], [2, 14, 3, 50, 60, 3]])
    features = {"input_ids": ids, "input_mask": (ids > 0).astype(int)}
    features["segment_ids"] = np.array([[0] * 6, [0, 0, 0, 1, 1, 1]])
    expected = {**model.encoder(features), **model(features)}
    is_token = ids > 0
    for name in ("pooled_output", "logits"):
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(
        np.array(found["sequence_output"])[is_token],
        expected["sequence_output"].numpy()[is_token],
        rtol=0,
        atol=1e-5,
    )
