"""The server: routes, joined requests, limits, the page, the command."""

import asyncio
import base64
import concurrent.futures
import contextlib
import dataclasses
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from types import SimpleNamespace

import numpy as np
import pytest
from starlette.responses import PlainTextResponse

from albert_tf import UserError, load_predictor, serve
from albert_tf.serving import web
from albert_tf.serving.server import Routes
from albert_tf.serving.settings import LimitSettings
from albert_tf.tasks.classification.predictor import ClassificationPredictor
from albert_tf.tasks.text_report import TextReport
from tests.helpers import ROOT
from tests.serving.conftest import LENGTH, items_of, random_texts

ERROR_KEYS = {"message", "type", "param", "code"}


@contextlib.contextmanager
def serving(predictor, **limits):
    """The address of a server."""
    settings = LimitSettings(**limits)
    server = web.server(Routes(predictor, "tiny", settings).app, settings)
    with running_server(server) as url:
        yield url


@contextlib.contextmanager
def running_server(server):
    """The address of a server that is made already."""
    server.config.port = 0
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
    status, body, _ = request(url, content)
    return status, json.loads(body) if body.startswith("{") else body


def request(url: str, content=None, method=None, **headers):
    """Status, body and headers of an answer."""
    data = json.dumps(content).encode() if isinstance(content, dict) else content
    asked = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(asked) as response:
            return response.status, response.read().decode(), dict(response.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), dict(error.headers)


class Echo:
    """A predictor that answers with the text and the number of examples at a time; "wrong" is an error."""

    batch_size = 8
    prompts = ()
    expects = "a text"

    def __init__(self, seconds: float = 0.0):
        self.seconds = seconds
        self.sizes = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.report = TextReport()

    def serious_remarks(self):
        return {}

    def check(self, item):
        if not isinstance(item, str):
            raise UserError("expected a text")
        return item

    def answered(self, examples):
        time.sleep(self.seconds)
        assert self.may_answer.wait(timeout=20)
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
    predictor = load_predictor(sources(kind))
    items = items_of(kind)
    expected = json.loads(json.dumps(predictor.answered(list(map(predictor.check, items)))))
    with running(predictor) as send:
        assert send("/v1/models/tiny:predict", {"instances": items}) == (
            200,
            {"predictions": expected},
        )


def test_a_pretrained_model_answers_by_the_text(send, predictor):
    items = ["a [MASK] sat", "the cat\ta dog", "the cat"]
    _, answer = send("/v1/models/tiny:predict", {"instances": items, "signature_name": "x"})
    assert [list(prediction) for prediction in answer["predictions"]] == [
        ["text", "masks"],
        ["in_order"],
        ["embedding"],
    ]
    assert answer["predictions"][0] == predictor.predict(items[:1])[0]


@pytest.mark.parametrize("kind", ["pairs", "labels", "tags", "choices"])
def test_the_open_inference_protocol_has_the_same_answers(kind, sources):
    predictor = load_predictor(sources(kind))
    items = items_of(kind)
    rows = [{"texts": item} if isinstance(item, str) else item for item in items]
    inputs = []
    for name in rows[0]:
        column = np.array([row[name] for row in rows])
        inputs.append({"name": name, "datatype": "BYTES", "shape": list(column.shape)})
        inputs[-1]["data"] = column.ravel().tolist()
    expected = predictor.predict([row.get("texts", row) for row in rows])
    with running(predictor) as send:
        status, answer = send("/v2/models/tiny/infer", {"id": "7", "inputs": inputs})
        shapes = {
            tensor["name"]: tensor["shape"] for tensor in send("/v2/models/tiny")[1]["inputs"]
        }
    assert shapes.get("options") == ([-1, 4] if kind == "choices" else None)
    assert (status, answer["id"], answer["model_name"]) == (200, "7", "tiny")
    found = {tensor["name"]: tensor for tensor in answer["outputs"]}
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
    assert [entry["index"] for entry in answer["data"]] == [0, 1]
    np.testing.assert_allclose(
        [entry["embedding"] for entry in answer["data"]], expected, atol=1e-6
    )
    _, answer = send("/v1/embeddings", {"input": texts, "encoding_format": None})
    np.testing.assert_allclose(
        [entry["embedding"] for entry in answer["data"]], expected, atol=1e-6
    )
    _, answer = send("/v1/embeddings", {"input": "the cat", "encoding_format": "base64"})
    vector = np.frombuffer(base64.b64decode(answer["data"][0]["embedding"]), "<f4")
    np.testing.assert_allclose(vector, expected[0], atol=1e-6)
    status, answer = send("/v1/embeddings", {"input": texts, "dimensions": 9})
    assert status == 400
    assert answer["error"] == {
        "message": "dimensions: the vectors of this model have 20 numbers",
        "type": "invalid_request_error",
        "param": "dimensions",
        "code": None,
    }


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
        ("/v1/models/tiny:predict", {"inputs": ["a"]}, 400, "not read"),
        ("/v1/models/tiny:predict", {"instances": []}, 400, "expected a list of 1 to 2,048"),
        (
            "/v1/models/tiny:predict",
            {"instances": [""] * 2049},
            413,
            "of 1 to 2,048 items, got 2,049",
        ),
        ("/v1/models/tiny:predict", {"instances": ["a", 7]}, 400, "expected a text"),
        ("/v1/models/tiny:predict", {"instances": ["a" * 1_000_001]}, 413, "got 1,000,001"),
        ("/v1/models/other:predict", {}, 404, "Not Found; the model here is tiny"),
        ("/v2/models/other/infer", {}, 404, "Not Found; the model here is tiny"),
        ("/", {}, 405, "Method Not Allowed"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_wrong_requests_get_one_line(send, path, content, status, message):
    found, answer = send(path, content)
    assert found == status and message in answer["error"] and "\n" not in answer["error"]
    assert len(answer["error"]) < 300


@pytest.mark.parametrize(
    "path, content, status, message, param, code",
    [
        ("/v1/embeddings", b"{", 400, "not usable as JSON", None, None),
        ("/v1/embeddings", {"input": 7}, 400, "expected a text, or a list", "input", None),
        ("/v1/embeddings", {"input": []}, 400, "expected a text, or a list", "input", None),
        ("/v1/embeddings", {"input": [7.5]}, 400, "expected texts, got 7.5", "input", None),
        ("/v1/embeddings", {"input": [15339, 1917]}, 400, "from [CLS] (", "input", None),
        ("/v1/embeddings", {"input": [[]]}, 400, "check_embedding_ctx_length", "input", None),
        (
            "/v1/embeddings",
            {"input": "a", "encoding_format": "x"},
            400,
            "float or base64",
            ...,
            None,
        ),
        ("/v1/embeddings", {"input": "a", "model": "x"}, 404, "model here is tiny", ..., ...),
        ("/v1/embeddings", None, 405, "Method Not Allowed", None, None),
        ("/v1/models/other", None, 404, "Not Found; the model here is tiny", None, None),
        ("/v1/models/tiny/metadata", None, 404, "names the tensors of a request", None, None),
        ("/v1/models/tiny/versions/1/metadata", None, 404, "names the tensors", None, None),
        ("/v1/chat/completions", {}, 404, "Not Found; the model here is tiny", None, None),
        ("/v1/rerank", {"documents": ["a"]}, 400, "query must be a text", "query", None),
        ("/rerank", {"query": "a"}, 400, "documents: expected", "documents", None),
        ("/rerank", {"query": "a", "documents": ["b", 7]}, 400, "document 1: expected", ..., None),
        ("/rerank", {"query": "a", "documents": ["b"], "top_n": 0}, 400, "above 0", "top_n", None),
    ],
    ids=lambda value: str(value)[:30],
)
def test_errors_of_openais_routes_are_objects(send, path, content, status, message, param, code):
    found, answer = send(path, content)
    error = answer["error"]
    assert found == status and message in error["message"] and "\n" not in error["message"]
    assert error["message"].count("tiny") <= 1  # nothing is said twice
    assert error["type"] == "invalid_request_error" and error.keys() == ERROR_KEYS
    assert param is ... or error["param"] == param
    assert code is ... or error["code"] == code


def test_the_list_of_models_is_openais_beside_that_of_tensorflow_serving(send):
    _, models = send("/v1/models")
    (model,) = models["data"]
    assert models["object"] == "list" and model["id"] == "tiny" and model["object"] == "model"
    assert type(model["created"]) is int and model["owned_by"]
    _, state = send("/v1/models/tiny")
    assert state.items() >= model.items()
    (status,) = state["model_version_status"]
    assert (status["version"], status["state"]) == ("1", "AVAILABLE")
    assert status["status"] == {"error_code": "OK", "error_message": ""}


def test_the_version_that_is_served_has_the_addresses_of_tensorflow_serving(predictor):
    settings = LimitSettings()
    server = web.server(Routes(predictor, "tiny", settings, version="7").app, settings)
    with running_server(server) as url:
        body = {"instances": ["the cat"]}
        answer = ask(f"{url}/v1/models/tiny/versions/7:predict", body)
        assert answer == ask(f"{url}/v1/models/tiny:predict", body) and answer[0] == 200
        _, state = ask(f"{url}/v1/models/tiny/versions/7")
        assert state["model_version_status"][0]["version"] == "7"
        assert ask(f"{url}/v2/models/tiny")[1]["versions"] == ["7"]
        status, answer = ask(f"{url}/v1/models/tiny/versions/1:predict", body)
        assert status == 404 and "the model here is tiny, version 7" in answer["error"]


def test_usage_counts_the_tokens_that_the_model_reads(send, predictor):
    texts = ["the cat", "", "the cat sat " * 50]
    lengths = [min(LENGTH, len(predictor.tokenizer.encode(text)) + 2) for text in texts]
    assert lengths[1:] == [2, LENGTH]
    _, answer = send("/v1/embeddings", {"input": texts})
    assert answer["usage"] == {"prompt_tokens": sum(lengths), "total_tokens": sum(lengths)}


def test_token_ids_of_the_model_have_the_vector_of_their_text(send, predictor):
    tokenizer = predictor.tokenizer
    text = "the cat sat on a mat"
    ids = [tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id]
    long = [tokenizer.cls_id, *tokenizer.encode(text * 9), tokenizer.sep_id]
    _, expected = send("/v1/embeddings", {"input": [text, text * 9]})
    for given in ([ids, long], ids):
        _, answer = send("/v1/embeddings", {"input": given})
        for entry, other in zip(answer["data"], expected["data"], strict=False):
            np.testing.assert_allclose(entry["embedding"], other["embedding"], atol=1e-6)
    assert len(answer["data"]) == 1 and answer["usage"]["prompt_tokens"] == len(ids)


def test_a_long_text_without_blanks_is_cut_as_any_other(send, predictor):
    texts = ["\u6771" * 12_000, "the" * 4_000, "the cat " * 7_500]
    status, answer = send("/v1/embeddings", {"input": texts})
    assert status == 200
    found = [entry["embedding"] for entry in answer["data"]]
    np.testing.assert_allclose(found, predictor.embed(texts), atol=1e-6)


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank"])
@pytest.mark.parametrize("kind", ["embedder", "score"])
def test_documents_are_ranked_as_in_python(sources, kind, path):
    predictor = load_predictor(sources(kind))
    texts = [text or "a" for text in random_texts(4, 40)]  # more than a batch
    expected = predictor.rank("the old house", texts)
    content = {"query": "the old house", "documents": [texts[0], *({"text": t} for t in texts[1:])]}
    with running(predictor) as send:
        status, answer = send(path, content)
        _, best = send(path, {**content, "top_n": 3, "return_documents": True})
    assert status == 200 and answer["usage"]["total_tokens"] > 80
    assert [entry.keys() for entry in answer["results"]] == [{"index", "relevance_score"}] * 40
    scores = [entry["relevance_score"] for entry in answer["results"]]
    np.testing.assert_allclose(scores, [entry["score"] for entry in expected], atol=1e-6)
    for entry, other in zip(best["results"], expected[:3], strict=True):
        assert entry["document"] == {"text": texts[entry["index"]]}
        assert entry["relevance_score"] == pytest.approx(other["score"], abs=1e-6)


def test_a_model_that_cannot_rank_says_so(sources):
    content = {"query": "the cat", "documents": ["a dog"]}
    for kind, reason in (("tags", "expected a model that ranks"), ("pairs", "not 3")):
        with running(load_predictor(sources(kind))) as send:
            status, answer = send("/v1/rerank", content)
        assert status == 400 and reason in answer["error"]["message"]


def test_a_long_request_is_divided_and_lets_others_in():
    model = Echo(0.1)
    with running(model) as send, concurrent.futures.ThreadPoolExecutor(2) as pool:
        many = [str(number) for number in range(83)]
        long = pool.submit(predictions, send, *many)
        time.sleep(0.25)
        assert predictions(send, "short") == (200, {"predictions": [{"text": "short"}]})
        assert not long.done()
        assert long.result() == (200, {"predictions": [{"text": text} for text in many]})
    assert max(model.sizes) == 8 and sum(model.sizes) == 84


def connected(url: str) -> socket.socket:
    """A connection to the server at an address."""
    parts = urllib.parse.urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=20)


def received(connection: socket.socket) -> str:
    """What a server sends until it ends a connection, which is then closed."""
    with connection, connection.makefile("rb") as file:
        return file.read().decode()


def sent(url: str, text: str, length: int | None = None) -> socket.socket:
    """A connection on which a request with a text was sent; a larger `length` leaves it half-sent."""
    body = json.dumps({"instances": [text]})
    head = "POST /v1/models/tiny:predict HTTP/1.1\r\nHost: localhost\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {length or len(body)}\r\n\r\n"
    connection = connected(url)
    connection.sendall((head + body).encode())
    return connection


def test_requests_whose_clients_have_left_are_not_computed():
    model = Echo()
    model.may_answer.clear()
    with serving(model, max_waiting=4) as url:
        first = sent(url, "first")
        for number in range(3):  # more in all than may wait
            time.sleep(0.3)
            gone = [sent(url, f"gone {number}") for _ in range(4)]
            time.sleep(0.3)
            for connection in gone:
                connection.close()
        time.sleep(0.3)
        last = sent(url, "last")
        time.sleep(0.3)
        model.may_answer.set()
        assert last.recv(10_000).startswith(b"HTTP/1.1 200")
        first.close()
        last.close()
    assert model.sizes == [1, 1]


def test_a_half_sent_request_does_not_hold_up_the_end():
    started = time.monotonic()
    with serving(Echo(), shutdown_seconds=1) as url:
        waiting = sent(url, "half", length=1000)
        time.sleep(0.1)
    assert time.monotonic() - started < 15
    answer = received(waiting)
    assert answer.startswith("HTTP/1.1 503") and '{"error":"the server ends' in answer
    assert "\r\nretry-after: 1\r\n" in answer


def test_a_limit_of_one_connection_serves_one():
    with serving(Echo(), max_connections=1) as url:
        first = sent(url, "a")
        assert first.recv(10_000).startswith(b"HTTP/1.1 200")
        for path, error in (("/metrics", str), ("/v1/embeddings", dict)):
            status, answer, headers = request(url + path)
            assert status == 503 and isinstance(json.loads(answer)["error"], error)
            assert headers["retry-after"] == "1"
        first.close()
        time.sleep(0.1)
        assert ask(url + "/v2/health/live")[0] == 200


def test_malformed_http_gets_json():
    with serving(Echo()) as url:
        connection = connected(url)
        connection.sendall(b"nothing of HTTP\r\n\r\n")
        head, _, body = received(connection).partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 400") and "application/json" in head
    assert json.loads(body) == {"error": "Invalid HTTP request received."}


@pytest.mark.parametrize(
    "host, status",
    [
        ("localhost:8501", 200),
        ("LOCALHOST.", 200),
        ("127.0.0.1", 200),
        ("[::1]:8501", 200),
        ("192.168.0.7:8501", 200),  # an address is no name that another site can lead here
        ("models.example.com", 200),
        ("evil.example.org", 400),
        ("localhost.evil.example.org", 400),
        ("127.0.0.1.evil.example.org:8501", 400),
    ],
)
def test_only_the_servers_own_host_names_are_answered(host, status):
    app = web.server(ok, LimitSettings(allowed_hosts="a, *.Example.com"), "0.0.0.0").config.app
    messages = []

    async def send(message):
        messages.append(message)

    scope = {"type": "http", "path": "/v1/models", "headers": [(b"host", host.encode())]}
    asyncio.run(app(scope, None, send))
    assert messages[0]["status"] == status
    if status == 400:
        message = json.loads(messages[1]["body"])["error"]["message"]
        assert "--allowed_hosts" in message and repr(host.partition(":")[0]) in message


async def ok(scope, receive, send):
    await PlainTextResponse("ok")(scope, receive, send)


PAGE = {"Origin": "http://localhost:3000"}


@pytest.mark.parametrize(
    "headers, status",
    [
        ({"Content-Type": "application/json"}, 200),
        ({"Content-Type": "application/json; charset=utf-8", **PAGE}, 200),  # needs a preflight
        ({"Content-Type": "application/x-www-form-urlencoded"}, 200),  # of `curl -d`
        ({"Content-Type": "application/x-www-form-urlencoded", **PAGE}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "none"}, 415),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "multipart/form-data; boundary=x"}, 415),
    ],
    ids=str,
)
def test_what_a_page_can_send_without_asking_is_rejected(headers, status):
    model = Echo()
    content = {"instances": ["a"]}
    with serving(model) as url:
        found, body, _ = request(f"{url}/v1/models/tiny:predict", content, **headers)
    assert found == status and len(model.sizes) == (status == 200)
    assert status == 200 or "Content-Type: application/json" in json.loads(body)["error"]


def test_pages_of_other_origins_are_answered_only_where_that_is_asked_for():
    asks = {"Access-Control-Request-Method": "POST", **PAGE}
    asks["Access-Control-Request-Headers"] = "content-type, authorization"
    with serving(Echo()) as url:
        status, body, headers = request(f"{url}/v1/embeddings", method="OPTIONS", **asks)
        assert status == 405 and "error" in json.loads(body)
        assert headers["allow"] == "POST"
        assert "access-control-allow-origin" not in headers
    with serving(Echo(), cors_origin=f"https://a.example, {PAGE['Origin']}") as url:
        status, _, headers = request(f"{url}/v1/embeddings", method="OPTIONS", **asks)
        assert status == 200
        assert headers["access-control-allow-origin"] == PAGE["Origin"]
        assert "authorization" in headers["access-control-allow-headers"].lower()
        status, _, headers = request(f"{url}/v1/embeddings", b"{", **PAGE)  # errors, too
        assert status == 415 and headers["access-control-allow-origin"] == PAGE["Origin"]
        other = {**asks, "Origin": "http://evil.example"}
        status, body, headers = request(f"{url}/v1/embeddings", method="OPTIONS", **other)
        assert status == 400 and "error" in json.loads(body)
        assert "access-control-allow-origin" not in headers
    with pytest.raises(UserError, match="--cors_origin=http://a/: expected scheme and host"):
        LimitSettings(cors_origin="http://a/")


def test_texts_that_the_vocabulary_does_not_know_are_counted_and_said_once(sources, capfd):
    with running(load_predictor(sources("embedder"))) as send:
        assert send("/v1/embeddings", {"input": ["the cat"]})[0] == 200
        assert "warning" not in capfd.readouterr().err
        for _ in range(3):
            assert send("/v1/embeddings", {"input": ["\u6771\u4eac \u5927\u5b66"] * 5})[0] == 200
        _, metrics = send("/metrics")
        error = capfd.readouterr().err
        assert error.count("warning") == 1 and "docs/guides/other_languages.md" in error
        for _ in range(2):
            assert send("/v1/embeddings", {"input": ["the cat " * 50] * 40})[0] == 200
        error = capfd.readouterr().err
        assert error.count("warning") == 1 and f"model's limit of {LENGTH} tokens" in error
    counts = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))
    unknown = counts["albert_tf_unknown_tokens_total"]
    tokens = counts["albert_tf_tokens_total"]
    assert float(unknown) == 30 and float(tokens) > 60


def test_a_model_without_vectors_says_so():
    with running(Echo()) as send:
        status, answer = send("/v1/embeddings", {"input": "a"})
        assert status == 400 and "has no vectors" in answer["error"]["message"]


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
    with serving(Echo(1.0), **limits) as url, concurrent.futures.ThreadPoolExecutor(9) as pool:
        contents = [{"instances": [str(number)]} for number in range(9)]
        answers = pool.map(
            lambda content: request(f"{url}/v1/models/tiny:predict", content), contents
        )
        found = {(status, headers.get("retry-after")) for status, _, headers in answers}
        assert found == {(503, "1")}
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


@pytest.mark.parametrize("kind", ["pretrained", "pairs", "tags", "choices", "span_or_none"])
def test_a_warm_up_computes_an_answer_that_no_report_counts(kind, sources, monkeypatch):
    predictor = load_predictor(sources(kind))
    computed = []
    outputs = predictor.outputs
    monkeypatch.setattr(
        predictor, "outputs", lambda table: computed.append(outputs(table)) or computed[-1]
    )
    predictor.warm_up()
    assert len(computed) == 1
    assert predictor.remarks() == [] and predictor.report.tokens.tokens == 0


def test_the_server_starts_after_the_model_has_computed_an_answer(sources, monkeypatch):
    steps = []
    monkeypatch.setattr(ClassificationPredictor, "warm_up", lambda self: steps.append("warm"))

    def server(app, limits, host):
        def run(sockets):
            steps.append("run")
            sockets[0].close()

        return SimpleNamespace(run=run)

    monkeypatch.setattr(web, "server", server)
    serve.main(LimitSettings(), serve.ServeSettings(model=sources("pairs"), port=0))
    assert steps == ["warm", "run"]


def test_only_folders_of_ascii_digits_are_versions(tmp_path):
    versions = tmp_path / "export"
    for name in ("9", "10", "\u00b2", "\u0663", "1a"):
        (versions / name).mkdir(parents=True)
    (versions / "2024").write_text("a note")
    assert serve.version_of(str(versions)) == str(versions / "10")
    model = tmp_path / "model"
    (model / "2024").mkdir(parents=True)  # such as a user's notes
    assert serve.version_of(str(model)) == str(model / "2024")
    (model / "config.json").write_text("{}")
    assert serve.version_of(str(model)) == str(model)
    assert serve.version_of("hf:albert/albert-base-v2") == "hf:albert/albert-base-v2"


def test_without_its_packages_the_command_names_the_extra(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"starlette: pip install 'albert-tf\[serve\]'"):
        serve.main(LimitSettings(), serve.ServeSettings(model="none"))


def test_a_port_that_is_taken_is_one_line():
    with running(Echo()) as send, pytest.raises(UserError, match="--port=.*: Address already in"):
        port = int(send.__closure__[0].cell_contents.rsplit(":", 1)[1])
        serve.main(LimitSettings(), serve.ServeSettings(model="none", port=port))


def test_the_manifest_for_kubernetes_has_probes_and_flags_of_the_server(send):
    page = (ROOT / "docs" / "guides" / "containers.md").read_text()
    manifest = page.partition("```yaml\n")[2].partition("```")[0]
    paths = re.findall(r"path: (/[\w/]+)", manifest)
    assert len(paths) == 3
    assert {send(path)[0] for path in paths} == {200}
    flags = dict(re.findall(r"--(\w+)=([^\s,\"\]]+)", manifest))
    assert flags.keys() == {"host", "allowed_hosts"}
    fields = {
        field.name for kind in serve.program.settings_classes for field in dataclasses.fields(kind)
    }
    assert flags.keys() <= fields
