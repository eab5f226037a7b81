"""Fine-tuned checkpoints of google-research/bert and google-research/albert are read with their heads."""

import json

import numpy as np
import pytest

from albert_tf import (
    Tokenizer,
    convert,
    fold,
    load_predictor,
    load_pretrained,
    save_pretrained,
)
from albert_tf.core.errors import UserError
from albert_tf.formats import tf1
from albert_tf.model import heads
from albert_tf.model.config import AlbertConfig
from tests.helpers import TINY, WORDS, error_of, write_bert_of_tf1, write_tf1_checkpoint

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(WORDS.split())]
TEXTS = ["anna saw a red house .", "bert met carl", "the old dog left"]
ALBERT = TINY.replace(vocab_size=len(TOKENS), initializer_range=0.4)
BERT = ALBERT.replace(embedding_size=20, num_hidden_groups=3, share_parameters="none")
INPUTS = {
    "input_ids": np.array([[2, 7, 9, 8, 3], [2, 11, 6, 3, 0]]),
    "segment_ids": np.array([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]]),
    "input_mask": np.array([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]]),
}


def _write(folder, model, **settings):
    """A model as a checkpoint of others: without our section, with the slots of an optimizer."""
    arrays = {name: variable.numpy() for name, variable in model.named_variables().items()}
    arrays |= {f"{name}/adam_m": np.zeros_like(array) for name, array in arrays.items()}
    arrays["global_step"] = np.array(7)
    if model.config.embedding_size == model.config.hidden_size:
        write_bert_of_tf1(folder, model.config, arrays, **settings)
    else:
        folder.mkdir()
        write_tf1_checkpoint(folder / "model.ckpt-7", arrays)
        values = {**model.config.to_dict(), **settings}
        (folder / "albert_config.json").write_text(json.dumps(values))
    (folder / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    return folder


def _classifier(config: AlbertConfig, number: int) -> heads.ModelWithHead:
    labels = [f"LABEL_{label}" for label in range(number)]
    return heads.AlbertForSequenceClassification(config.with_labels(labels, ""), seed=3)


def _without_labels(model, folder, **settings):
    """The same classifier in a file that names no labels, as those of the original."""
    model.config = model.config.replace(foreign={})
    return _write(folder, model, **settings)


@pytest.fixture
def warnings_of(monkeypatch):
    """The lines that reading a checkpoint logs."""
    lines = []
    monkeypatch.setattr(tf1.logging, "warning", lambda line, *values: lines.append(line % values))
    return lines


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("config", [ALBERT, BERT], ids=["albert", "bert"])
def test_a_classifier_has_the_scores_of_its_pooled_output(config, number, tmp_path, warnings_of):
    model = _classifier(config, number)
    save_pretrained(model, tmp_path / "hf")  # the same weights in the layout of transformers
    head = {name: value.numpy() for name, value in model.head.named_variables().items()}
    read = load_pretrained(_without_labels(model, tmp_path / "tf1"))
    assert type(read) is heads.AlbertForSequenceClassification
    assert read.config.labels == tuple(f"LABEL_{label}" for label in range(number))
    assert "id2label" in read.config.foreign and "finetuning_task" not in read.config.foreign

    states = read.encoder(INPUTS)["sequence_output"].numpy()
    pooler = {name: value.numpy() for name, value in read.named_variables().items()}
    pooled = np.tanh(
        states[:, 0] @ pooler["bert/pooler/dense/kernel"] + pooler["bert/pooler/dense/bias"]
    )
    expected = pooled @ head["output_weights"].T + head["output_bias"]
    assert np.ptp(expected) > 0.05
    logits = read(INPUTS)["logits"].numpy()
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)
    in_transformers = load_pretrained(tmp_path / "hf")(INPUTS)["logits"]
    np.testing.assert_array_equal(logits, in_transformers)

    (line,) = warnings_of
    assert "models.md#fine-tuned-checkpoints" in line
    assert ("regression" in line) == (number == 1)


@pytest.mark.parametrize("config", [ALBERT, BERT], ids=["albert", "bert"])
def test_the_head_of_squad_gives_starts_and_ends(config, tmp_path, warnings_of):
    model = heads.AlbertForSpan(config, seed=3)
    weights = model.head.output_weights.numpy()
    read = load_pretrained(_write(tmp_path / "tf1", model))
    assert type(read) is heads.AlbertForSpan and not warnings_of
    outputs = read(INPUTS)
    states = read.encoder(INPUTS)["sequence_output"].numpy()
    scores = states @ weights.T + read.head.output_bias.numpy()
    is_token = INPUTS["input_mask"] == 1
    for index, name in enumerate(("start_logits", "end_logits")):
        found = outputs[name].numpy()
        np.testing.assert_allclose(found[is_token], scores[is_token, index], rtol=0, atol=1e-5)


def test_the_head_of_squad_2_of_the_original_is_read(tmp_path, warnings_of):
    model = heads.AlbertForSpanOrNone(ALBERT, seed=3)
    read = load_pretrained(_write(tmp_path / "tf1", model))
    assert type(read) is heads.AlbertForSpanOrNone and not warnings_of
    features = {**INPUTS, "p_mask": np.zeros((2, 5), np.int32)}
    wanted = model(features)["cls_logits"]
    np.testing.assert_array_equal(read(features)["cls_logits"], wanted)


def test_a_configuration_may_name_labels_and_another_class(tmp_path, warnings_of):
    names = {"0": "bad", "1": "fair", "2": "good"}
    model = _classifier(BERT, 3)
    folder = _without_labels(model, tmp_path / "named", id2label=names)
    assert load_pretrained(folder).config.labels == ("bad", "fair", "good")

    section = {"_albert_tf": {"model_class": "AlbertForTokenClassification"}}
    folder = _without_labels(model, tmp_path / "tagger", **section)
    read = load_pretrained(folder)
    assert type(read) is heads.AlbertForTokenClassification and len(read.config.labels) == 3
    assert read(INPUTS)["logits"].shape == (2, 5, 3)

    section = {"_albert_tf": {"model_class": "AlbertForMultipleChoice"}}
    folder = _without_labels(_classifier(BERT, 1), tmp_path / "choice", **section)
    assert type(load_pretrained(folder)) is heads.AlbertForMultipleChoice
    assert not warnings_of

    section = {"_albert_tf": {"model_class": "AlbertForPreTraining"}}
    folder = _without_labels(model, tmp_path / "encoder", **section)
    read = heads.AlbertForPreTraining.from_pretrained(folder)
    expected = model.encoder(INPUTS)["pooled_output"]
    np.testing.assert_array_equal(read.encoder(INPUTS)["pooled_output"], expected)
    assert "without 2 variables of the checkpoint" in warnings_of.pop(0)

    folder = _without_labels(model, tmp_path / "wrong", id2label={"0": "bad", "1": "good"})
    assert "output_weights has shape [3, 20]" in error_of(load_pretrained, folder)


def test_variables_that_no_model_has_are_named(tmp_path, warnings_of, capsys):
    model = heads.AlbertForPreTraining(BERT, seed=3)
    arrays = {name: variable.numpy() for name, variable in model.named_variables().items()}
    arrays["crf/transitions"] = np.ones([3, 3], np.float32)
    write_bert_of_tf1(tmp_path / "tf1", BERT, arrays)
    assert type(load_pretrained(tmp_path / "tf1")) is heads.AlbertForPreTraining
    (line,) = warnings_of
    assert "without 1 variables of the checkpoint: 'crf/transitions'" in line
    settings = {"model": str(tmp_path / "tf1"), "output_dir": str(tmp_path / "folded")}
    fold.main(fold.FoldSettings(**settings, embedding_size=3))
    assert "left out, as no model here has them: crf/transitions\n" in capsys.readouterr().out


def test_a_folded_or_converted_classifier_keeps_its_head(tmp_path):
    model = _classifier(BERT, 3)
    head = model.head.output_weights.numpy()
    folder = _without_labels(model, tmp_path / "tf1")
    answers = load_predictor(folder).predict(TEXTS)
    probabilities = [list(answer["probabilities"].values()) for answer in answers]
    assert np.ptp(probabilities, axis=0).max() > 0.01

    convert.main(convert.ConvertSettings(model=str(folder), output_dir=str(tmp_path / "hf")))
    assert load_predictor(tmp_path / "hf").predict(TEXTS) == answers

    settings = fold.FoldSettings(
        model=str(folder), output_dir=str(tmp_path / "folded"), embedding_size=3
    )
    fold.main(settings)
    folded = load_pretrained(tmp_path / "folded")
    np.testing.assert_array_equal(folded.head.output_weights, head)
    assert folded.config.labels == ("LABEL_0", "LABEL_1", "LABEL_2")


def test_a_head_without_its_bias_is_an_error(tmp_path):
    model = _classifier(BERT, 3)
    arrays = {name: variable.numpy() for name, variable in model.named_variables().items()}
    del arrays["output_bias"]
    write_bert_of_tf1(tmp_path / "tf1", BERT, arrays)
    with pytest.raises(UserError, match="no values for its head, output_bias"):
        load_pretrained(tmp_path / "tf1")


@pytest.mark.parametrize(("token", "is_lower"), [("Anna", False), ("anna", True)])
def test_capitals_in_the_vocabulary_of_a_bert_say_that_it_is_cased(token, is_lower, tmp_path):
    folder = _write(tmp_path / "output", heads.AlbertForPreTraining(BERT, seed=3))
    path = folder / "vocab.txt"
    path.write_text(path.read_text().replace("anna", token))
    assert Tokenizer.from_pretrained(folder).cleaning["do_lower_case"] is is_lower
