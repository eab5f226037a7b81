"""Exported models: the answers of predictors, alone in a process; layout, fine-tuning, what is rejected."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import UserError, load_predictor, load_pretrained, save_pretrained
from albert_tf.export import export_model
from albert_tf.model import heads
from tests.serving.conftest import CONFIG, LENGTH, TASKS, features_of, items_of, random_texts


def features_for(model, batch: int, length: int) -> dict[str, tf.Tensor]:
    features = features_of(model, batch, batch, length)
    return {name: tf.constant(values) for name, values in features.items()}


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)


def answered(signature, items: list[dict]) -> dict[str, np.ndarray]:
    """The outputs of a signature for items, whose keys are its inputs."""
    columns = {name: tf.constant([item[name] for item in items]) for name in items[0]}
    return {name: value.numpy() for name, value in signature(**columns).items()}


@pytest.mark.parametrize(
    "kind",
    ["pairs", "score", "labels", pytest.param("vectors", marks=pytest.mark.slow), "embedder"],
)
def test_strings_get_the_answers_of_the_predictor(kind, served, sources):
    items = items_of(kind)
    expected = load_predictor(sources(kind)).predict(items)
    if kind == "embedder":
        items = [{"texts": text} for text in items]
    outputs = answered(served(kind).signatures["serving_default"], items)
    if kind == "score":
        assert_close(outputs["score"], [answer["similarity"] for answer in expected])
    elif kind == "embedder":
        assert_close(outputs["embedding"], [answer["embedding"] for answer in expected])
    else:
        found = [list(answer["probabilities"].values()) for answer in expected]
        assert_close(outputs["probabilities"], found)
    if kind == "pairs":
        labels = [answer["label"] for answer in expected]
        assert [label.decode() for label in outputs["label"]] == labels and len(set(labels)) > 1
    if kind == "labels":
        found = [[name.decode() for name in row if name] for row in outputs["labels"]]
        assert found == [answer["labels"] for answer in expected]
        assert len(set(map(tuple, found))) > 2


def test_a_text_alone_is_classified_as_a_pair_without_a_second(served):
    signatures = served("pairs").signatures
    texts = random_texts(1, 9)
    alone = answered(signatures["classify"], [{"texts": text} for text in texts])
    pairs = [{"text_a": text, "text_b": ""} for text in texts]
    assert_close(alone["logits"], answered(signatures["serving_default"], pairs)["logits"])


@pytest.mark.parametrize(
    ("kind", "signature", "output"),
    [
        ("pairs", "classify_tokens", "logits"),
        ("labels", "classify_tokens", "logits"),
        ("embedder", "embed_tokens", "embedding"),
    ],
)
def test_callers_that_tokenize_get_the_outputs_of_the_head(
    kind, signature, output, served, sources
):
    model = load_pretrained(sources(kind))
    features = features_for(model, 3, 9)
    assert_close(served(kind).signatures[signature](**features)[output], model(features)[output])


def test_texts_of_a_pretrained_model(served, sources):
    signatures = served("pretrained").signatures
    predictor = load_predictor(sources("pretrained"))
    texts = ["the cat sat", "the dog", "a mat, " * 40]
    outputs = answered(signatures["embed"], [{"texts": text} for text in texts])
    assert_close(outputs["mean_embedding"], predictor.embed(texts))
    pairs = [{"text_a": "the cat", "text_b": "a dog"}, {"text_a": "a mat", "text_b": "why?"}]
    order = answered(signatures["sentence_order"], pairs)
    expected = predictor.predict(["the cat\ta dog", "a mat\twhy?"])
    assert_close(order["in_order"], [answer["in_order"] for answer in expected])
    assert_close(order["in_order"] + order["swapped"], [1, 1])


def test_tokens_are_the_encoder_at_any_batch_and_length(served, sources):
    encoder = load_pretrained(sources("pairs")).encoder
    tokens = served("pairs").signatures["tokens"]
    for batch, length in ((1, 1), (3, 7), (2, LENGTH)):
        features = features_for(encoder, batch, length)
        outputs = tokens(**features)
        expected = encoder(features)
        assert outputs.keys() == {"sequence_output", "pooled_output"}
        for name, array in outputs.items():
            assert_close(array, expected[name])


@pytest.mark.parametrize("kind", ["span", "span_or_none", "tags", "choices"])
def test_squad_tagging_and_race_take_ids(kind, served, sources):
    model = load_pretrained(sources(kind))
    features = features_for(model, 3, 9)
    expected = model(features)
    outputs = served(kind).signatures["serving_default"](**features)
    assert outputs.keys() == expected.keys()
    for name, array in outputs.items():
        assert_close(array, expected[name])


def test_the_hub_modules_signatures(served, sources):
    model = load_pretrained(sources("pretrained"))
    signatures = served("pretrained").signatures
    features = features_for(model, 3, 11)
    positions = tf.constant([[0, 10], [5, 5], [1, 2]])
    expected = model({**features, "masked_lm_positions": positions})
    mlm = signatures["mlm"](**features, mlm_positions=positions)
    assert mlm.keys() == {"sequence_output", "pooled_output", "mlm_logits"}
    assert_close(mlm["mlm_logits"], expected["masked_lm_logits"])
    sop = signatures["sop"](**features)
    assert_close(sop["pooled_output"], expected["pooled_output"])
    assert_close(sop["sop_log_probs"], tf.nn.log_softmax(expected["sentence_order_logits"]))


def test_an_encoder_alone_has_no_heads_signatures(spm, tokenizer, tmp_path):
    model = heads.AlbertForPreTraining(CONFIG.replace(vocab_size=tokenizer.vocab_size))
    model.named_variables = model.encoder.named_variables
    save_pretrained(model, str(tmp_path / "model"), spm_model_file=spm)
    served = tf.saved_model.load(export_model(str(tmp_path / "model"), str(tmp_path / "out")))
    names = {"embed", "serving_default", "tokenization_info", "tokens"}
    assert set(served.signatures) == names


ALONE = """
import json, sys
import numpy as np
for name in ("albert_tf", "tf_keras", "sentencepiece", "official"):
    sys.modules[name] = None  # importing it fails
import tensorflow as tf
import tensorflow_text
folder, requests = sys.argv[1:]
model = tf.saved_model.load(folder)
for name, columns in json.loads(requests).items():
    outputs = model.signatures[name](**{key: tf.constant(value) for key, value in columns.items()})
    values = {key: np.asarray(value.numpy()).tolist() for key, value in outputs.items()}
    print(json.dumps({"signature": name, **values}, default=bytes.decode))
"""


def test_an_export_is_one_folder_that_needs_only_tensorflow(exported, served, tmp_path):
    shutil.copytree(exported("pairs"), tmp_path / "moved")
    columns = {"text_a": ["the cat", "a dog ran " * 9], "text_b": ["", "why?"]}
    requests = json.dumps({"serving_default": columns, "tokenization_info": {}})
    command = [sys.executable, "-c", ALONE, str(tmp_path / "moved"), requests]
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "0"}  # tensorflow_text imports Keras 3
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    pairs, info = map(json.loads, done.stdout.splitlines())
    items = [{"text_a": a, "text_b": b} for a, b in zip(*columns.values(), strict=True)]
    expected = answered(served("pairs").signatures["serving_default"], items)
    assert_close(pairs["logits"], expected["logits"])
    assert info["vocab_file"] == str(tmp_path / "moved/assets/spiece.model")
    assert info["do_lower_case"] is True


def test_an_export_has_vocabulary_and_configuration(exported, spm):
    assets = exported("span_or_none") / "assets"
    assert (assets / "spiece.model").read_bytes() == pathlib.Path(spm).read_bytes()
    config = json.loads((assets / "albert_config.json").read_text())
    assert config["num_attention_heads"] == CONFIG.num_attention_heads
    about = json.loads((assets / "export.json").read_text())
    assert about["task"] == TASKS["span_or_none"]
    assert (about["model_class"], about["without_values"]) == ("AlbertForSpanOrNone", [])


def test_bfloat16_is_near(sources, tmp_path, served):
    path = export_model(sources("pairs"), str(tmp_path), dtype="bfloat16")
    model = tf.saved_model.load(path)
    items = items_of("pairs")
    found = answered(model.signatures["serving_default"], items)["logits"]
    expected = answered(served("pairs").signatures["serving_default"], items)["logits"]
    assert found.dtype == np.float32
    assert {variable.dtype for variable in model.trainable_variables} == {tf.float32}
    # 25 roundings in a row of .42 x 2^-8 each, the sum over D = 20 of weights of .3, four deviations: .045
    assert 1e-5 < np.max(np.abs(found - expected)) < 0.045


def test_a_loaded_export_can_be_fine_tuned(exported, sources):
    model = tf.saved_model.load(str(exported("pairs")))
    features = features_for(load_pretrained(sources("pairs")), 8, 11)
    labels = tf.constant([0, 1, 2, 0, 1, 2, 0, 1])

    def loss(training):
        logits = model(features, training=training)["logits"]
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))

    assert float(loss(True)) != float(loss(True))  # dropout
    before = float(loss(False))
    for _ in range(5):
        with tf.GradientTape() as tape:
            value = loss(True)
        variables = model.trainable_variables
        for variable, gradient in zip(variables, tape.gradient(value, variables), strict=True):
            variable.assign_sub(0.05 * tf.convert_to_tensor(gradient))
    assert float(loss(False)) < before - 0.1
    texts = [{"text_a": "the cat", "text_b": ""}]
    fresh = tf.saved_model.load(str(exported("pairs")))
    tuned, old = (answered(m.signatures["serving_default"], texts) for m in (model, fresh))
    assert np.max(np.abs(tuned["logits"] - old["logits"])) > 0.01  # the same variables


def test_every_loaded_export_can_be_called(served, sources):
    features = features_for(load_pretrained(sources("span")), 2, 9)
    several = {name: tf.stack([value] * 3, axis=1) for name, value in features.items()}
    for training in (False, True):
        assert served("pretrained")(features, training=training)["pooled_output"].shape == [2, 20]
        assert served("choices")(several, training=training)["logits"].shape == [2, 3]
        assert served("span")(features, training=training)["end_logits"].shape == [2, 9]
        others = {"p_mask": tf.zeros([2, 9], tf.int32)}
        others |= {"start_positions": tf.ones([2, 1], tf.int32)} if training else {}
        outputs = served("span_or_none")({**features, **others}, training=training)
        assert ("end_log_probs" in outputs) == training


def test_a_task_without_its_head_is_rejected(spm, tokenizer, tmp_path):
    model = heads.AlbertForMultipleChoice(CONFIG.replace(vocab_size=tokenizer.vocab_size))
    model.named_variables = model.encoder.named_variables
    save_pretrained(model, str(tmp_path / "model"), spm_model_file=spm)
    with pytest.raises(UserError, match="AlbertForMultipleChoice .* has no values for its head"):
        export_model(str(tmp_path / "model"), str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_version_that_is_there_is_rejected_or_replaced(sources, tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "7/old").write_text("old")
    with pytest.raises(UserError, match="7: is there already; give another --version"):
        export_model(sources("score"), str(tmp_path), version=7)
    export_model(sources("score"), str(tmp_path), version=7, overwrite=True)
    assert {path.name for path in tmp_path.iterdir()} - {".lock"} == {"7"}
    assert (tmp_path / "7/saved_model.pb").exists() and not (tmp_path / "7/old").exists()
