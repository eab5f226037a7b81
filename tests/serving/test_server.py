"""The server: routes, joined requests, limits, the page, the command."""

import base64
import concurrent.futures
import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
import uvicorn

from albert_tf import UserError, load_predictor, serve
from albert_tf.serving.server import Routes
from albert_tf.serving.settings import LimitSettings
from tests.helpers import ROOT
from tests.serving.conftest import items_of


@contextlib.contextmanager
def serving(predictor, **limits):
    """The address of a server."""
    app = Routes(predictor, "tiny", LimitSettings(**limits)).app
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        assert not thread.is_alive()


@contextlib.contextmanager
def running(predictor, **limits):
    """A function that sends requests to a server: path, content -> status, answer."""
    with serving(predictor, **limits) as url:
        yield lambda path, content=None: ask(url + path, content)


def ask(url: str, content=None):
    data = json.dumps(content).encode() if isinstance(content, dict) else content
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data)) as response:
            body, status = response.read().decode(), response.status
    except urllib.error.HTTPError as error:
        body, status = error.read().decode(), error.code
    return status, json.loads(body) if body.startswith("{") else body


class Echo:
    """A predictor that answers with the text and the number of examples at a time; "wrong" is an error."""

    batch_size, prompts, expects = 8, (), "a text"

    def __init__(self, seconds: float = 0.0):
        self.seconds, self.sizes = seconds, []

    def check(self, item):
        if not isinstance(item, str):
            raise UserError("expected a text")
        return item

    def answered(self, examples):
        time.sleep(self.seconds)
        self.sizes.append(len(examples))
        if "wrong" in examples:
            raise UserError("it is wrong")
        if "defect" in examples:
            raise KeyError("defect")
        return [{"text": text} for text in examples]


@pytest.fixture(scope="module")
def predictor(sources):
    return load_predictor(sources("pretrained"))


@pytest.fixture(scope="module")
def send(predictor):
    with running(predictor) as send:
        yield send


@pytest.mark.parametrize("kind", ["pairs", "labels", "score", "tags", "choices", "span_or_none"])
def test_answers_are_the_predictors(kind, sources):
    predictor, items = load_predictor(sources(kind)), items_of(kind)
    expected = json.loads(json.dumps(predictor.answered(list(map(predictor.check, items)))))
    with running(predictor) as send:
        assert send("/v1/models/tiny:predict", {"instances": items}) == (
            200,
            {"predictions": expected},
        )


def test_a_pretrained_model_answers_by_the_text(send, predictor):
    items = ["a [MASK] sat", "the cat\ta dog", "the cat"]
    _, answer = send("/v1/models/tiny:predict", {"instances": items, "signature_name": "x"})
    assert [list(one) for one in answer["predictions"]] == [
        ["text", "masks"],
        ["in_order"],
        ["embedding"],
    ]
    assert answer["predictions"][0] == predictor.predict(items[:1])[0]


@pytest.mark.parametrize("kind", ["pairs", "labels", "tags", "choices"])
def test_the_open_inference_protocol_has_the_same_answers(kind, sources):
    predictor, items = load_predictor(sources(kind)), items_of(kind)
    rows = [{"texts": item} if isinstance(item, str) else item for item in items]
    inputs = []
    for name in rows[0]:
        column = np.array([row[name] for row in rows])
        inputs.append({"name": name, "datatype": "BYTES", "shape": list(column.shape)})
        inputs[-1]["data"] = column.ravel().tolist()
    expected = predictor.predict([row.get("texts", row) for row in rows])
    with running(predictor) as send:
        status, answer = send("/v2/models/tiny/infer", {"id": "7", "inputs": inputs})
        shapes = {one["name"]: one["shape"] for one in send("/v2/models/tiny")[1]["inputs"]}
    assert shapes.get("options") == ([-1, 4] if kind == "choices" else None)
    assert (status, answer["id"], answer["model_name"]) == (200, "7", "tiny")
    found = {one["name"]: one for one in answer["outputs"]}
    key = {"pairs": "label", "choices": "answer", "labels": "labels", "tags": "entities"}[kind]
    values = [answer[key] for answer in expected]
    if kind in ("labels", "tags"):  # lists of different lengths
        assert list(map(json.loads, found[key]["data"])) == values
    else:
        assert found[key]["data"] == values
    if kind != "tags":
        array = np.array(found["probabilities"]["data"]).reshape(found["probabilities"]["shape"])
        rows = [list(answer["probabilities"].values()) for answer in expected]
        np.testing.assert_allclose(array, rows, atol=1e-6)


def test_a_shape_of_many_numbers_costs_no_time(send):
    tensor = {"name": "texts", "shape": [10**16] * 55_000, "data": ["a"]}
    started = time.monotonic()
    status, answer = send("/v2/models/tiny/infer", {"inputs": [tensor]})
    assert status == 400 and "shape" in answer["error"] and len(answer["error"]) < 200
    assert time.monotonic() - started < 3


@pytest.mark.parametrize(
    "tensor",
    [
        {"shape": [1] * 9, "data": ["a"]},
        {"shape": [2], "data": ["a"]},
        {"shape": [-1, -1], "data": ["a"]},
        {"shape": [True], "data": ["a"]},
        {"shape": [], "data": ["a"]},
        {"shape": [1], "data": "a"},
        {"shape": [1], "data": [[["a"], "b"]]},
    ],
    ids=str,
)
def test_a_tensor_of_another_shape_is_rejected(send, tensor):
    status, answer = send("/v2/models/tiny/infer", {"inputs": [{"name": "texts", **tensor}]})
    assert status == 400 and "\n" not in answer["error"]


def test_embeddings_are_those_of_the_predictor(send, predictor):
    texts = ["the cat", "a [MASK] sat"]
    expected = predictor.embed(texts)
    _, answer = send("/v1/embeddings", {"input": texts, "dimensions": 20, "model": "tiny"})
    assert [one["index"] for one in answer["data"]] == [0, 1]
    np.testing.assert_allclose([one["embedding"] for one in answer["data"]], expected, atol=1e-6)
    _, answer = send("/v1/embeddings", {"input": "the cat", "encoding_format": "base64"})
    vector = np.frombuffer(base64.b64decode(answer["data"][0]["embedding"]), "<f4")
    np.testing.assert_allclose(vector, expected[0], atol=1e-6)
    status, answer = send("/v1/embeddings", {"input": texts, "dimensions": 9})
    assert (status, answer["error"]) == (
        400,
        "dimensions: the vectors of this model have 20 numbers",
    )


def test_states_and_metrics(send):
    for path in ("/v1/models/tiny", "/v2/models/tiny/ready", "/v2/health/ready"):
        status, answer = send(path)
        assert status == 200 and answer["ready"]
    _, about = send("/v2/models/tiny")
    assert about["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    send("/v1/models/tiny:predict", {"instances": ["the cat"]})
    _, text = send("/metrics")
    counts = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(counts["albert_tf_batches_total"]) >= 1
    assert float(counts["albert_tf_request_seconds_count"]) >= 1


def test_the_page_has_the_model_and_asks_nobody_else(send):
    status, page = send("/")
    assert status == 200 and "__MODEL__" not in page
    about = json.loads(page.partition('type="application/json">')[2].partition("</script>")[0])
    assert (about["name"], about["kind"]) == ("tiny", "PretrainedPredictor")
    assert "http://" not in page and "https://" not in page


@pytest.mark.parametrize(
    "path, content, status, message",
    [
        ("/v1/models/tiny:predict", b"{", 400, "not usable as JSON"),
        ("/v1/models/tiny:predict", b"[" * 50_000, 400, "not usable as JSON"),
        ("/v1/models/tiny:predict", {"text": "a"}, 400, 'expected "instances"'),
        ("/v1/models/tiny:predict", {"instances": []}, 400, "expected a list of 1 to 64"),
        ("/v1/models/tiny:predict", {"instances": ["a"] * 65}, 413, "expected a list of 1 to 64"),
        ("/v1/models/tiny:predict", {"instances": ["a", 7]}, 400, "expected a text"),
        ("/v1/models/tiny:predict", {"instances": ["a" * 20_000]}, 400, "without white space"),
        ("/v1/models/tiny:predict", b" " * 1_100_000, 413, "expected at most 1,048,576 bytes"),
        ("/v1/embeddings", {"input": 7}, 400, "expected a list"),
        ("/v1/embeddings", {"input": "a", "encoding_format": "x"}, 400, "float or base64"),
        ("/v1/embeddings", {"input": "a", "model": "other"}, 404, "the only one here is tiny"),
        ("/v1/models/other:predict", {}, 404, "Not Found; the model here is tiny"),
        ("/", {}, 405, "Method Not Allowed"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_wrong_requests_get_one_line(send, path, content, status, message):
    found, answer = send(path, content)
    assert found == status and message in answer["error"] and "\n" not in answer["error"]
    assert len(answer["error"]) < 300


def test_a_model_without_vectors_says_so():
    with running(Echo()) as send:
        assert send("/v1/embeddings", {"input": "a"})[0] == 400


def predictions(send, *texts):
    return send("/v1/models/tiny:predict", {"instances": list(texts)})


def test_requests_that_wait_are_joined_and_get_their_own_answers():
    model = Echo(0.3)
    with running(model) as send, concurrent.futures.ThreadPoolExecutor(12) as pool:
        first = pool.submit(predictions, send, "first")
        time.sleep(0.1)
        others = [pool.submit(predictions, send, f"a{n}", f"b{n}") for n in range(6)]
        assert first.result()[1]["predictions"] == [{"text": "first"}]
        for n, other in enumerate(others):
            expected = [{"text": f"a{n}"}, {"text": f"b{n}"}]
            assert other.result() == (200, {"predictions": expected})
    assert model.sizes == [1, 8, 4]  # at most eight texts at a time


def test_an_error_reaches_only_the_request_that_causes_it():
    with running(Echo(0.2)) as send, concurrent.futures.ThreadPoolExecutor(4) as pool:
        pool.submit(predictions, send, "first")
        time.sleep(0.1)
        texts = ("a", "wrong", "b", "defect")
        right, wrong, also_right, defect = pool.map(lambda text: predictions(send, text), texts)
        assert right[0] == also_right[0] == 200
        assert wrong == (400, {"error": "it is wrong"})
        assert defect == (500, {"error": "KeyError"})
        assert predictions(send, "c")[0] == 200


def test_a_full_queue_and_a_late_answer_are_rejected():
    limits = {"max_waiting": 1, "answer_seconds": 0.5}
    with running(Echo(1.0), **limits) as send, concurrent.futures.ThreadPoolExecutor(9) as pool:
        found = list(pool.map(lambda n: predictions(send, str(n))[0], range(9)))
        assert set(found) == {503}
        time.sleep(1.5)
    with running(Echo(0.1), **limits) as send:  # what was too late does not stay
        assert predictions(send, "a")[0] == 200


def test_the_command_serves_the_newest_version_until_it_is_ended(exported):
    words = f"-m albert_tf.command serve {exported('pairs').parent} 0".split()
    command = [sys.executable, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            url = process.stdout.readline().strip()
            content = {"instances": [{"text_a": "the cat"}]}
            status, answer = ask(f"{url}v1/models/pairs:predict", content)
            assert status == 200 and answer["predictions"][0]["label"] in ("yes", "no", "perhaps")
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 128 + signal.SIGTERM


def test_without_its_packages_the_command_names_the_extra(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"starlette: pip install 'albert-tf\[serve\]'"):
        serve.main(LimitSettings(), serve.ServeSettings(model="none"))


def test_a_port_that_is_taken_is_one_line():
    with running(Echo()) as send, pytest.raises(UserError, match="--port=.*: Address already in"):
        port = int(send.__closure__[0].cell_contents.rsplit(":", 1)[1])
        serve.main(LimitSettings(), serve.ServeSettings(model="none", port=port))
