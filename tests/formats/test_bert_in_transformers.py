"""BERTs in transformers, both ways: the outputs of each class; skipped without torch and transformers (make peers)."""

import numpy as np
import pytest

from albert_tf.formats import pretrained
from albert_tf.model import heads
from tests.formats.test_bert import CONFIG

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

LABELED = CONFIG.with_labels(["yes", "no", "perhaps"], "tsv")
# Our class -> theirs, and our outputs -> theirs.
CLASSES = {
    "AlbertForPreTraining": (
        "BertForPreTraining",
        {
            "sentence_order_logits": "seq_relationship_logits",
            "masked_lm_logits": "prediction_logits",
        },
    ),
    "AlbertForSequenceClassification": ("BertForSequenceClassification", {"logits": "logits"}),
    "AlbertForTokenClassification": ("BertForTokenClassification", {"logits": "logits"}),
    "AlbertForSpan": (
        "BertForQuestionAnswering",
        {"start_logits": "start_logits", "end_logits": "end_logits"},
    ),
    "AlbertForMultipleChoice": ("BertForMultipleChoice", {"logits": "logits"}),
}


def _features(name):
    ids = np.random.default_rng(0).integers(5, 30, (2, 7)).astype(np.int32)
    mask = (np.arange(7) < np.array([[7], [5]])).astype(np.int32)
    features = {"input_ids": ids, "input_mask": mask, "segment_ids": (np.arange(7) > 3) * mask}
    if name == "AlbertForMultipleChoice":
        return {key: value[None] for key, value in features.items()}
    return features


def _theirs(model, features):
    names = {
        "input_ids": "input_ids",
        "input_mask": "attention_mask",
        "segment_ids": "token_type_ids",
    }
    inputs = {names[key]: torch.tensor(value).long() for key, value in features.items()}
    with torch.no_grad():
        return {key: value.numpy() for key, value in model.eval()(**inputs).items()}


def _ours(model, name, features):
    if name == "AlbertForPreTraining":
        positions = np.tile(np.arange(7, dtype=np.int32), (2, 1))
        features = {**features, "masked_lm_positions": positions}
    return {key: np.asarray(value) for key, value in model(features).items() if key != "all_layers"}


def _assert_equal(name, ours, theirs, mask):
    for own, other in CLASSES[name][1].items():
        expected, found = theirs[other], ours[own].reshape(theirs[other].shape)
        if expected.shape[:2] == mask.shape:  # outputs of padding mean nothing
            expected, found = expected[mask == 1], found[mask == 1]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6, err_msg=own)


@pytest.mark.parametrize("name", CLASSES)
def test_each_class_opens_in_transformers_and_comes_back(name, tmp_path):
    has_labels = name in ("AlbertForSequenceClassification", "AlbertForTokenClassification")
    model = heads.MODEL_CLASSES[name](LABELED if has_labels else CONFIG, seed=4)
    for index, variable in enumerate(model.trainable_variables):
        noise = np.random.default_rng(index).normal(0, 0.1, variable.shape)
        variable.assign_add(noise.astype(np.float32))
    features = _features(name)
    pretrained.save_pretrained(model, tmp_path / "ours")
    cls = getattr(transformers, CLASSES[name][0])
    opened, report = cls.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    theirs = _theirs(opened, features)
    _assert_equal(name, _ours(model, name, features), theirs, features["input_mask"])
    opened.save_pretrained(tmp_path / "theirs")
    again = pretrained.load_pretrained(tmp_path / "theirs")
    _assert_equal(name, _ours(again, name, features), theirs, features["input_mask"])


@pytest.mark.parametrize("cls", ["BertModel", "BertForMaskedLM"])
def test_their_encoders_are_read(cls, tmp_path):
    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
    sizes += ("intermediate_size", "max_position_embeddings")
    config = transformers.BertConfig(**{name: getattr(CONFIG, name) for name in sizes})
    model = getattr(transformers, cls)(config)
    model.save_pretrained(tmp_path)
    features = _features(cls)
    own = pretrained.load_pretrained(tmp_path)
    is_token = features["input_mask"] == 1
    theirs = _theirs(model, features)
    key = "last_hidden_state" if cls == "BertModel" else "logits"
    expected = own.encoder(features)["sequence_output"].numpy()
    if cls == "BertForMaskedLM":
        expected = _ours(own, "AlbertForPreTraining", features)["masked_lm_logits"]
    found = theirs[key]
    np.testing.assert_allclose(
        expected.reshape(found.shape)[is_token], found[is_token], rtol=0, atol=1e-6
    )
    assert own.config.sentence_task == "nsp"
