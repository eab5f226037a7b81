"""ONNX exports over HTTP: plain texts, the open inference protocol, state and metrics.

Covers: onnx_server.py.
"""

import http.client
import json
import threading

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import UserError, load_predictor, save_pretrained
from albert_tf.export import export_model
from albert_tf.model import heads
from albert_tf.serving import v2_route
from albert_tf.serving.onnx_server import Served
from albert_tf.serving.server import make_server
from tests.helpers import TINY, WORDS, train_spm

pytest.importorskip("onnxruntime")
TEXTS = ["anna bert", "carl", "dora emil fran"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("v2")
    spm = train_spm(folder / "spm.model", [WORDS] * 9, vocab_size=60)
    config = TINY.replace(vocab_size=60, initializer_range=0.2)
    model = heads.AlbertForSequenceClassification(config.with_labels(["no", "yes"], "tsv"), seed=3)
    save_pretrained(model, folder / "model", spm_model_file=spm, task={"max_seq_length": 17})
    export_model(str(folder / "model"), str(folder / "tiny"), format="onnx")
    return folder / "tiny"


@pytest.fixture(scope="module")
def ask(folder):
    """Sends a request and returns status and body."""
    server = make_server(str(folder), 0)
    stop = threading.Event()
    thread = threading.Thread(target=server.serve_until, args=(stop.wait,))
    thread.start()

    def ask(path: str, content=None):
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
        body = None if content is None else json.dumps(content)
        connection.request("POST" if body else "GET", path, body)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, json.loads(text) if text.startswith("{") else text

    yield ask
    stop.set()
    thread.join(timeout=20)


@pytest.fixture(scope="module")
def expected(folder):
    return load_predictor(folder).predict(TEXTS)


def test_plain_texts_are_rows_of_a_model_of_one_text(ask, expected):
    status, found = ask("/v1/models/tiny:predict", {"instances": TEXTS})
    assert status == 200
    assert [row["label"] for row in found["predictions"]] == [row["label"] for row in expected]
    status, named = ask(
        "/v1/models/tiny:predict", {"instances": [{"text_a": text, "text_b": ""} for text in TEXTS]}
    )
    assert (status, named) == (200, found)


def test_the_open_protocol_has_the_same_answers(ask, expected):
    tensors = [
        {"name": name, "shape": [3], "datatype": "BYTES", "data": texts}
        for name, texts in (("text_a", TEXTS), ("text_b", [""] * 3))
    ]
    status, found = ask("/v2/models/tiny/infer", {"inputs": tensors})
    assert (status, found["model_name"]) == (200, "tiny")
    outputs = {tensor["name"]: tensor for tensor in found["outputs"]}
    assert outputs["label"]["datatype"] == "BYTES"
    assert outputs["label"]["data"] == [row["label"] for row in expected]
    assert outputs["probabilities"]["shape"] == [3, 2]
    probabilities = [value for row in expected for value in row["probabilities"].values()]
    np.testing.assert_allclose(outputs["probabilities"]["data"], probabilities, atol=1e-5)


def test_state_and_metrics(ask):
    assert ask("/v2/health/ready") == (200, {"ready": True})
    assert ask("/v2/models/tiny")[1]["versions"] == ["1"]
    assert ask("/v2/models/other")[0] == 404
    assert ask("/v1/models/tiny:predict", {"instances": TEXTS})[0] == 200
    status, text = ask("/metrics")
    assert status == 200
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(values["albert_tf_batches_total"]) >= 1
    assert float(values['albert_tf_request_seconds_count{status="200"}']) >= 3
    assert float(values['albert_tf_request_seconds_count{status="404"}']) == 1
    assert 0 < float(values['albert_tf_request_seconds_sum{status="200"}']) < 60


@pytest.mark.parametrize(
    "tensor",
    [
        {"name": "a", "shape": [2], "data": ["x"]},
        {"name": "a", "shape": "2", "data": ["x"]},
        {"name": "a", "data": ["x"]},
        {"name": ["a"], "shape": [1], "data": ["x"]},
        "x",
    ],
)
def test_a_wrong_tensor_is_named(tensor):
    with pytest.raises(UserError):
        v2_route.request_of({"inputs": [tensor]})


def test_a_request_has_its_id_and_the_outputs_that_it_asks_for(ask):
    tensor = {"name": "text_a", "shape": [1], "datatype": "BYTES", "data": TEXTS[:1]}
    request = {"id": "7", "inputs": [tensor, {**tensor, "name": "text_b", "data": [""]}]}
    status, found = ask("/v2/models/tiny/infer", {**request, "outputs": [{"name": "label"}]})
    assert (status, found["id"]) == (200, "7")
    assert [tensor["name"] for tensor in found["outputs"]] == ["label"]
    for wrong in ({"outputs": [{"name": "none"}]}, {"outputs": ["label"]}, {"parameters": 5}):
        status, found = ask("/v2/models/tiny/infer", {**request, **wrong})
        assert status == 400, found


def test_several_labels_have_the_places_of_a_saved_model(folder, tmp_path):
    config = TINY.replace(vocab_size=60, initializer_range=0.9)
    config = config.with_labels(["a", "b", "c"], "tsv", is_multi_label=True)
    model = heads.AlbertForSequenceClassification(config, seed=3)
    save_pretrained(model, tmp_path / "m", spm_model_file=folder.with_name("spm.model"))
    export_model(str(tmp_path / "m"), str(tmp_path / "onnx"), format="onnx")
    (signature,) = {*Served(str(tmp_path / "onnx")).signatures.values()}
    found = signature(text_a=tf.constant(TEXTS), text_b=tf.constant([""] * 3))["labels"]
    expected = load_predictor(tmp_path / "m").predict(TEXTS)
    assert found.shape == (3, 3)
    for row, answer in zip(found.numpy().tolist(), expected, strict=True):
        assert [name.decode() for name in row if name] == answer["labels"]


def test_data_gets_its_shape():
    tensor = {"name": "ids", "shape": [2, 3], "data": [1, 2, 3, 4, 5, 6]}
    request = v2_route.request_of({"inputs": [tensor]})
    assert request == {"inputs": {"ids": [[1, 2, 3], [4, 5, 6]]}}
