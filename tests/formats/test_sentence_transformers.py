"""Folders of sentence-transformers: written, read, compared with the real library, and what is rejected."""

import json

import numpy as np
import pytest
import safetensors.numpy

from albert_tf import UserError, load_predictor, load_pretrained, save_pretrained
from albert_tf.formats.pretrained import read_weights
from albert_tf.model.heads import AlbertForEmbedding, AlbertForSequenceClassification
from tests.helpers import NAMES, WORDS, noisy

TEXTS = ["anna saw a dog .", "who left the old house ?", NAMES, "red", "", f"{WORDS} {WORDS}"]
KINDS = {
    "mean": {},
    "unit": {"normalize": True, "pooling": "cls"},
    "projected": {"projection_size": 9, "projection_activation": "tanh", "pooling": "max"},
    "all": {"projection_size": 9, "normalize": True},
}
TASK = {"max_seq_length": 12}
ABOUT = "config_sentence_transformers.json"


@pytest.fixture
def folder_of(tiny_pretrained, tmp_path):
    """A function that writes a model of a kind, and returns its folder."""

    def write(kind: str, task=TASK):
        config = load_pretrained(tiny_pretrained).config
        how = {"sentence_embedding": KINDS[kind]}
        model = noisy(AlbertForEmbedding(config.replace(foreign={**config.foreign, **how}), seed=3))
        vocabulary = tiny_pretrained / "spiece.model"
        save_pretrained(model, tmp_path / kind, spm_model_file=vocabulary, task=task)
        return tmp_path / kind

    return write


@pytest.mark.parametrize("kind", KINDS)
def test_a_written_folder_is_read_with_its_modules(folder_of, kind):
    folder = folder_of(kind)
    modules = json.loads((folder / "modules.json").read_text())
    kinds = [module["type"].rpartition(".")[2] for module in modules]
    dense = "projection_size" in KINDS[kind]
    normal = "normalize" in KINDS[kind]
    assert kinds == ["Transformer", "Pooling", *["Dense"] * dense, *["Normalize"] * normal]
    assert [module["path"] for module in modules][1:] == [
        f"{number}_{name}" for number, name in enumerate(kinds[1:], start=1)
    ]
    names = safetensors.numpy.load_file(folder / "model.safetensors").keys()
    assert not any("projection" in name.removeprefix("albert.encoder") for name in names)
    weights = read_weights(folder)
    assert weights.model_class == "AlbertForEmbedding"
    assert weights.task_settings["max_seq_length"] == 12
    assert KINDS[kind].items() <= weights.config.sentence_embedding.items()
    vectors = load_predictor(folder).embed(TEXTS)
    assert vectors.shape == (len(TEXTS), 9 if dense else 20)
    if normal:
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_real_library_has_the_same_vectors(folder_of, kind, tmp_path, tiny_pretrained):
    library = pytest.importorskip("sentence_transformers")
    folder = folder_of(kind)
    theirs = library.SentenceTransformer(str(folder), device="cpu")
    ours = load_predictor(folder)
    assert theirs.max_seq_length == 12
    np.testing.assert_allclose(theirs.encode(TEXTS), ours.embed(TEXTS), atol=1e-5)
    np.testing.assert_allclose(
        theirs.similarity(theirs.encode(TEXTS[:2]), theirs.encode(TEXTS[2:4])),
        ours.similarity(TEXTS[:2], TEXTS[2:4]),
        atol=1e-5,
    )
    # What it writes itself has other keys, and no SentencePiece model.
    theirs.save_pretrained(str(tmp_path / "theirs"))
    again = load_predictor(tmp_path / "theirs", spm_model_file=tiny_pretrained / "spiece.model")
    assert again.task_settings["max_seq_length"] == 12
    np.testing.assert_allclose(again.embed(TEXTS), ours.embed(TEXTS), atol=1e-5)


def test_a_cross_encoder_of_the_real_library_ranks_alike(tiny_pretrained, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    config = load_pretrained(tiny_pretrained).config.with_labels(["score"], "tsv")
    model = AlbertForSequenceClassification(config, seed=3)
    spm = tiny_pretrained / "spiece.model"
    save_pretrained(noisy(model), tmp_path / "ours", spm_model_file=spm)
    query = "who saw anna ?"
    texts = ["anna saw a dog .", "a red house", "bert"]
    ours = load_predictor(tmp_path / "ours")
    theirs = library.CrossEncoder(str(tmp_path / "ours"), device="cpu")
    for number, (entry, other) in enumerate(
        zip(ours.rank(query, texts), theirs.rank(query, texts), strict=True)
    ):
        assert entry["index"] == other["corpus_id"], number
        assert entry["score"] == pytest.approx(float(other["score"]), abs=1e-5)
    import torch

    theirs.activation_fn = torch.nn.Sigmoid()
    theirs.save_pretrained(str(tmp_path / "theirs"))
    again = load_predictor(tmp_path / "theirs", spm_model_file=spm).rank(query, texts)
    for entry, other in zip(again, theirs.rank(query, texts), strict=True):
        assert entry["score"] == pytest.approx(float(other["score"]), abs=1e-5)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("modules.json", lambda v: v[2].update(type="a.LSTM"), "Pooling, LSTM, Normalize"),
        ("1_Pooling/config.json", lambda v: v.update(pooling_mode="median"), "got 'median'"),
        ("2_Dense/config.json", lambda v: v.update(activation_function="ReLU"), "is 'ReLU'"),
        (ABOUT, lambda v: v.update(prompts={"q": "q: "}, default_prompt_name="q"), "_name='q'"),
        (ABOUT, lambda v: v.update(truncate_dim=4), "_transformers.json: truncate_dim=4 is not"),
    ],
)
def test_what_is_not_computed_here_is_rejected_by_name(folder_of, name, change, message):
    folder = folder_of("all")
    values = json.loads((folder / name).read_text())
    change(values)
    (folder / name).write_text(json.dumps(values))
    with pytest.raises(UserError, match=message):
        read_weights(folder)


def test_texts_may_be_lower_cased_before_a_cased_tokenizer(folder_of):
    folder = folder_of("mean")
    for name, is_lower in (("sentence_bert_config", True), ("tokenizer_config", False)):
        values = json.loads((folder / f"{name}.json").read_text()) | {"do_lower_case": is_lower}
        (folder / f"{name}.json").write_text(json.dumps(values))
    assert read_weights(folder).cleaning == {"do_lower_case": True, "keep_accents": False}
    (folder / "spiece.model").rename(folder / "vocab.txt")
    assert read_weights(folder).cleaning == {"do_lower_case": True, "keep_accents": True}
