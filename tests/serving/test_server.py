"""The example server: formats, wrong requests, limits, joined requests, the end.

Covers: settings.py.
"""

import base64
import concurrent.futures
import contextlib
import http.client
import itertools
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import psutil
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from albert_tf import save_pretrained, serve
from albert_tf.core.errors import UserError
from albert_tf.export import export_model
from albert_tf.model.heads import AlbertForPreTraining
from albert_tf.serving.server import Server, make_server
from albert_tf.serving.settings import LimitSettings
from albert_tf.text.tokenizer import Tokenizer
from tests.helpers import NAMES, ROOT, TINY, WORDS, train_spm, without_log_level

URL = "/v1/models/tiny"
ORDER = {"signature_name": "sentence_order"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """An export with signatures of one input, of two, and of ids."""
    folder = tmp_path_factory.mktemp("serve")
    spm = train_spm(folder / "spiece.model", [f"{WORDS} ,"] * 3, vocab_size=60)
    sizes = {"max_position_embeddings": 30, "num_hidden_layers": 1, "initializer_range": 0.2}
    config = TINY.replace(vocab_size=Tokenizer.from_file(spm).vocab_size, **sizes)
    save_pretrained(AlbertForPreTraining(config, seed=4), folder / "model", spm_model_file=spm)
    export_model(str(folder / "model"), str(folder / "tiny"), warmup=False)
    return folder / "tiny"


@pytest.fixture(scope="module")
def model(folder):
    return tf.saved_model.load(str(folder / "1"))


@pytest.fixture(scope="module")
def start(model):
    @contextlib.contextmanager
    def start(**limits):
        server = Server(model, "tiny", "1", 0, LimitSettings(**limits))
        stop = threading.Event()
        thread = threading.Thread(target=server.serve_until, args=(stop.wait,))
        thread.start()
        try:
            yield server
        finally:
            stop.set()
            thread.join(timeout=20)
            assert not thread.is_alive()

    return start


@pytest.fixture(scope="module")
def server(start):
    with start() as server:
        yield server


def send(server, method: str, path: str, body: bytes | str | None = None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    with contextlib.closing(connection):
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the answer is there
            connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def ask(server, request, **headers):
    return send(server, "POST", f"{URL}:predict", json.dumps(request), **headers)


def send_bytes(server, content: bytes) -> tuple[int, dict]:
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as connection:
        connection.sendall(content)
        response = http.client.HTTPResponse(connection)
        response.begin()
        return response.status, json.loads(response.read())


# --- Formats ---


def test_rows_columns_values_and_base64_give_the_answers_of_the_model(server, model):
    texts = {"text_a": ["anna met bert .", "good"], "text_b": ["bert left .", "bad é"]}
    expected = model.signatures["sentence_order"](
        **{name: tf.constant(values) for name, values in texts.items()}
    )
    encoded = [{"b64": base64.b64encode(text.encode()).decode()} for text in texts["text_b"]]
    for text_b in (texts["text_b"], encoded):
        columns = {**texts, "text_b": text_b}
        status, by_column = ask(server, {**ORDER, "inputs": columns})
        assert status == 200
        for name, values in by_column["outputs"].items():
            assert_allclose(values, expected[name], atol=1e-6)
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        assert ask(server, {**ORDER, "instances": rows})[1]["predictions"] == [
            {name: values[index] for name, values in by_column["outputs"].items()}
            for index in range(2)
        ]
    status, by_value = ask(server, {"instances": texts["text_a"]})
    by_name = ask(server, {"instances": [{"texts": text} for text in texts["text_a"]]})[1]
    by_list = ask(server, {"inputs": texts["text_a"]})[1]["outputs"]["pooled_output"]
    assert status == 200 and by_value == by_name
    assert [row["pooled_output"] for row in by_value["predictions"]] == by_list


def test_signatures_of_ids_masks_and_nothing(server, model):
    row = {name: [2, 1, 1] for name in ("input_ids", "input_mask", "segment_ids")}
    row |= {"input_mask": [1, 1, 1], "segment_ids": [0, 0, 1]}
    status, found = ask(server, {"signature_name": "tokens", "instances": [row]})
    expected = model.signatures["tokens"](**{name: tf.constant([row[name]]) for name in row})
    assert status == 200
    (values,) = (row["sequence_output"] for row in found["predictions"])
    assert_allclose(values, expected["sequence_output"][0], atol=1e-6)
    request = {"signature_name": "fill_mask", "instances": ["anna [MASK] bert [MASK]", "good"]}
    pieces = [row["tokens"] for row in ask(server, request)[1]["predictions"]]
    assert np.shape(pieces) == (2, 2, 5) and pieces[1] == [[""] * 5] * 2
    status, found = ask(server, {"signature_name": "tokenization_info", "inputs": {}})
    assert status == 200 and found["outputs"]["do_lower_case"] is True
    assert found["outputs"]["vocab_file"] == "spiece.model"


def test_vectors_in_the_form_of_other_servers(server, model):
    texts = ["anna met bert .", "good"]
    expected = model.signatures["embed"](texts=tf.constant(texts))["mean_embedding"]
    status, answer = send(server, "POST", "/v1/embeddings", json.dumps({"input": texts}))
    assert (status, answer["model"]) == (200, "tiny")
    assert_allclose([one["embedding"] for one in answer["data"]], expected, atol=1e-6)
    long_word = "x" * (server.limits.max_word_characters + 1)
    for wrong, expected_status in ((3, 400), ([], 400), (["a"] * 65, 413), (long_word, 413)):
        status, answer = send(server, "POST", "/v1/embeddings", json.dumps({"input": wrong}))
        assert status == expected_status and answer["error"], wrong


def test_the_state_of_the_model_and_of_a_version(server):
    for path in (URL, f"{URL}/versions/1"):
        status, found = send(server, "GET", path)
        assert status == 200
        (version,) = found["model_version_status"]
        assert (version["version"], version["state"]) == ("1", "AVAILABLE")


# --- Wrong requests ---


def tokens_request(ids) -> dict:
    columns = {name: ids for name in ("input_ids", "input_mask", "segment_ids")}
    return {"signature_name": "tokens", "inputs": columns}


IDS = tokens_request([[1]])["inputs"]
WRONG_REQUESTS = [
    ({**ORDER, "inputs": "a bare string"}, "an object of lists: text_a, text_b"),
    ({**ORDER, "inputs": {"text_a": ["a"], "text_b": ["b", "c"]}}, "as many rows"),
    ({**ORDER, "inputs": {"text_a": "a", "text_b": "b"}}, "text_a: expected a list of"),
    ({**ORDER, "instances": [{"text_a": "a"}]}, "must be an object of text_a, text_b"),
    ({"instances": "a bare string"}, "must be a list"),
    ({"instances": []}, "at least one"),
    ({"instances": [1]}, "texts: expected a list of strings"),
    ({"instances": [["a"]]}, "texts: expected"),
    ({"instances": [{"b64": "no base64!"}]}, "texts: expected"),
    ({"instances": ["a"], "inputs": ["a"]}, '"instances" or "inputs"'),
    ({"instances": ["a"], "signature_nam": "x"}, "signature_nam"),
    ({"instances": ["a"], "signature_name": ["x"]}, "expected one of"),
    ({}, "got nothing"),
    ([], "expected a JSON object"),
    ({"instances": ["a"] * 65}, "at most 64 rows"),
    ({"signature_name": "tokenization_info", "instances": ["a"]}, "without inputs"),
    (tokens_request([[1, 2], [3]]), "expected a list of lists of equal lengths"),
    (tokens_request([[1.5]]), "expected a list of lists"),
    (tokens_request([[True]]), "expected a list of lists"),
    (tokens_request([[2**40]]), "expected a list of lists"),
    (tokens_request([[10**6]]), "must be from 0 to"),
    (tokens_request([[]]), ""),
    ({**tokens_request([[1]]), "inputs": {**IDS, "input_mask": [[-5]]}}, "input_mask must be from"),
    (tokens_request([[1] * 100]), ""),
    (b"", "not JSON"),
    (b"\xff\xfe", "not JSON"),
    (b'{"instances": ["\\ud800"]}', "surrogate"),
    (b'{"instances": ' + b"[" * 100_000, "JSON"),
    (b'{"instances": ' + b"[" * 900 + b"]" * 900 + b"}", "texts: expected"),
]


@pytest.mark.parametrize("request_, message", WRONG_REQUESTS, ids=lambda value: str(value)[:40])
def test_a_wrong_request_is_an_error_and_the_server_goes_on(server, request_, message):
    body = request_ if isinstance(request_, bytes) else json.dumps(request_)
    status, found = send(server, "POST", f"{URL}:predict", body)
    assert status == (413 if "at most" in message else 400) and found.keys() == {"error"}
    assert message in found["error"]
    assert ask(server, {"instances": ["a"]})[0] == 200


@pytest.mark.parametrize(
    "headers, status",
    [
        (b"Content-Length: -1", 400),
        (b"Content-Length: \xb2", 400),
        (b"Content-Length: 1\r\nContent-Length: 2", 400),
        (b"Content-Length: 999999999999999999999999", 413),
        (b"Content-Length: 1048577\r\nExpect: 100-continue", 413),
        (b"X: y", 411),
        (b"Transfer-Encoding: chunked", 411),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 2", 411),
        (b"".join(b"X%d: y\r\n" % number for number in range(200)), 431),
    ],
)
def test_a_length_that_cannot_be_used_is_refused_at_once(server, headers, status):
    started = time.monotonic()
    request = b"POST %s:predict HTTP/1.1\r\n%s\r\n\r\n" % (URL.encode(), headers)
    found_status, found = send_bytes(server, request)
    assert (found_status, found.keys()) == (status, {"error"})
    assert time.monotonic() - started < 5


def test_paths_methods_and_what_is_not_http(server):
    assert send(server, "GET", "/v1/models/other")[0] == 404
    status, found = send(server, "POST", "/v1/models/other:predict", b"{}")
    assert status == 404 and f"POST {URL}:predict" in found["error"]
    assert send(server, "PUT", URL)[0] == 405
    assert send(server, "DELETE", URL)[0] == 405
    assert send_bytes(server, b"nonsense\r\n\r\n")[0] == 400
    assert send_bytes(server, b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n")[0] == 414
    assert ask(server, {"instances": ["a"]})[0] == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "OPTIONS", "NONSENSE"])
def test_every_method_of_every_route_is_answered(server, method):
    """The time limit of the connection is the watchdog."""
    routes = (
        URL,
        f"{URL}:predict",
        f"{URL}/versions/1",
        f"{URL}/versions/1:predict",
        "/",
        "/x",
        "*",
    )
    for route, body in itertools.product(routes, (None, b"", b"{}", b'{"instances": ["a"]}')):
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
        with contextlib.closing(connection):
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, route, body)
            assert 200 <= connection.getresponse().status < 500


def test_a_connection_is_used_again_after_a_wrong_request(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    with contextlib.closing(connection):
        for body, status in ((b"{}", 400), (b'{"instances": ["a"]}', 200)):
            connection.request("POST", f"{URL}:predict", body)
            response = connection.getresponse()
            response.read()
            assert response.status == status
            kept = connection.sock
        assert kept is connection.sock is not None


# --- LimitSettings ---


def test_fifty_clients_at_once_are_all_answered(server):
    barrier = threading.Barrier(50)

    def client(number):
        barrier.wait()
        return ask(server, {"instances": [f"{NAMES.split()[number % 10]} was here"]})[0]

    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        assert list(pool.map(client, range(50))) == [200] * 50


def test_a_large_request_is_refused_without_reading_it_into_memory(start):
    with start(max_request_bytes=100_000) as server:
        content = b'{"instances": [' + b" " * 30_000_000
        assert send(server, "POST", f"{URL}:predict", content)[0] == 413
        assert ask(server, {"instances": ["a"]})[0] == 200


def test_an_answer_that_is_too_large_is_refused(start):
    row = {name: [1] * 20 for name in ("input_ids", "input_mask", "segment_ids")}
    request = {"signature_name": "tokens", "instances": [row]}
    for limits in ({"max_answer_values": 300}, {"max_computed_values": 300}):
        with start(**limits) as server:
            status, found = ask(server, request)
            assert status == 413 and "fewer or shorter rows" in found["error"]


def test_slow_clients_are_disconnected_and_others_are_answered(start):
    with start(max_connections=4, request_seconds=0.5) as server:
        address = ("127.0.0.1", server.server_port)
        slow = [socket.create_connection(address, timeout=20) for _ in range(12)]
        for connection in slow:
            connection.sendall(b"POST / HTTP/1.1\r\n")
        time.sleep(0.2)
        busy = {"error": "the server is busy; try again later"}
        assert ask(server, {"instances": ["a"]}) == (503, busy)
        # A byte now and then does not keep a connection.
        end = time.monotonic() + 3
        while server._deadlines and time.monotonic() < end:
            for connection in slow:
                with contextlib.suppress(OSError):
                    connection.sendall(b"X")
            time.sleep(0.05)
        assert not server._deadlines
        assert ask(server, {"instances": ["a"]})[0] == 200
        for connection in slow:
            connection.close()


def test_slow_clients_do_not_shut_others_out(start):
    with start(max_connections=4, request_seconds=60) as server:
        address = ("127.0.0.1", server.server_port)
        with contextlib.ExitStack() as stack:
            for _ in range(20):
                slow = socket.create_connection(address, timeout=20)
                stack.enter_context(slow).sendall(b"POST / HTTP/1.1\r\n")
            time.sleep(1.3)  # after a second, they count as slow
            for _ in range(3):
                assert ask(server, {"instances": ["a"]})[0] == 200


@pytest.mark.parametrize("word", ["\u4e00" * 10_001, "\ufdfa" * 700 + "\ufdfb" * 4000])
def test_a_text_whose_tokens_take_too_long_is_refused(server, word):
    status, found = ask(server, {"instances": [f"anna {word}"]})
    assert status == 413 and "without white space; expected at most 10,000" in found["error"]
    assert ask(server, {"instances": [f"{word[:300]} " * 20]})[0] == 200


def test_a_computation_that_takes_too_long_is_left_and_others_are_answered(start, model):
    go_on = threading.Event()

    def slow(texts):
        go_on.wait(timeout=60)
        return {"value": tf.constant([1.0])}

    slow.structured_input_signature = ((), {"texts": tf.TensorSpec([None], tf.string, "texts")})
    slow.structured_outputs = {"value": tf.TensorSpec([None], tf.float32, "value")}

    class WithSlow:
        signatures = {**model.signatures, "slow": slow}

    with start(compute_seconds=2) as server, concurrent.futures.ThreadPoolExecutor() as pool:
        server.model, server.batches._signatures = WithSlow, WithSlow.signatures
        late = pool.submit(ask, server, {"signature_name": "slow", "instances": ["a"]})
        time.sleep(0.1)
        for _ in range(3):
            assert ask(server, {"instances": ["a"]})[0] == 200
        status, found = late.result()
        assert status == 503 and "takes longer than 2 seconds; send fewer" in found["error"]
        go_on.set()
        assert ask(server, {"instances": ["a"]})[0] == 200


# --- Joined requests ---


class SlowModel:
    """A model whose first call waits, so that requests come together."""

    def __init__(self, model):
        self.signatures = {name: self._slow(model.signatures[name]) for name in model.signatures}
        self.go_on = threading.Event()

    def _slow(self, signature):
        def call(**inputs):
            self.go_on.wait(20)
            return signature(**inputs)

        call.structured_input_signature = signature.structured_input_signature
        call.structured_outputs = signature.structured_outputs
        return call


def answers_together(start, model, requests, **limits):
    """The answers to requests that come while the model works on another one; and how often it ran for them."""
    slow = SlowModel(model)
    with start(**limits) as server, concurrent.futures.ThreadPoolExecutor(20) as pool:
        server.model, server.batches._signatures = slow, slow.signatures
        first = pool.submit(ask, server, {"instances": ["first"]})
        while not server.batches.num_batches:
            time.sleep(0.01)
        others = [pool.submit(ask, server, request) for request in requests]
        while server.batches._arrived.qsize() < len(requests):
            time.sleep(0.01)
        slow.go_on.set()
        assert first.result()[0] == 200
        found = [other.result() for other in others]
        return found, server.batches.num_batches - 1


def test_requests_are_joined_and_answered_as_if_alone(start, server, model):
    texts = [f"{name} saw {name} ." * (index + 1) for index, name in enumerate(NAMES.split())]
    requests = [{"instances": [text, "good"]} for text in texts]
    requests += [{**ORDER, "instances": [{"text_a": text, "text_b": "b"}]} for text in texts[:3]]
    found, num_batches = answers_together(start, model, requests, max_batch_size=8)
    assert num_batches == 4  # 20 rows by eights, and those of the other signature
    for request, (status, answer) in zip(requests, found, strict=True):
        assert status == 200
        alone = ask(server, request)[1]["predictions"]
        for row, expected in zip(answer["predictions"], alone, strict=True):
            for name, values in expected.items():
                assert_allclose(row[name], values, atol=1e-6)


def test_a_request_that_fails_in_the_model_fails_alone(start, model, monkeypatch):
    class Fails(SlowModel):
        def _slow(self, signature):
            call = super()._slow(signature)

            def fail(**inputs):
                if any(b"bad" in text for array in inputs.values() for text in array.numpy()):
                    raise tf.errors.InvalidArgumentError(None, None, "a bad text")
                return call(**inputs)

            vars(fail).update(vars(call))
            return fail

    monkeypatch.setattr(sys.modules[__name__], "SlowModel", Fails)
    requests = [{"instances": [text]} for text in ("good", "bad", "fine")]
    found, num_batches = answers_together(start, model, requests)
    assert [status for status, _ in found] == [200, 400, 200]
    assert found[1][1] == {"error": "a bad text"}
    assert num_batches == 4  # all together, then each


def test_rows_whose_shape_depends_on_other_rows_are_not_joined(start, model):
    requests = [
        {"signature_name": "fill_mask", "instances": [text]}
        for text in ("anna [MASK] .", "[MASK] [MASK] [MASK]")
    ]
    found, num_batches = answers_together(start, model, requests)
    assert num_batches == 2
    assert [len(answer["predictions"][0]["tokens"]) for _, answer in found] == [1, 3]


# --- The program ---


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log.txt"


@pytest.fixture
def process(folder, log):
    command = [sys.executable, "-m", "albert_tf.serve", str(folder), "0"]
    environment = {**without_log_level(), "PYTHONPATH": str(ROOT)}
    with (
        log.open("w") as file,
        subprocess.Popen(
            command, text=True, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=file
        ) as process,
    ):
        yield process
        process.kill()


class Address:
    def __init__(self, process):
        self.server_port = int(process.stdout.readline().split(":")[2].split("/")[0])


@pytest.mark.slow
def test_the_program_bounds_its_memory_and_ends_after_the_requests_that_it_has(process, log):
    address = Address(process)
    assert ask(address, {"instances": ["a"]})[0] == 200
    before = psutil.Process(process.pid).memory_info().rss
    content = b'{"instances": [' + b'"",' * 10_000_000
    assert send(address, "POST", f"{URL}:predict", content)[0] == 413
    small = b'{"instances": [' + b"{}," * 300_000 + b"{}]}"
    for _ in range(5):
        assert send(address, "POST", f"{URL}:predict", small)[0] == 400
    assert psutil.Process(process.pid).memory_info().rss - before < 100e6
    long = {"instances": ["anna saw bert . " * 3000] * 20}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        idle = socket.create_connection(("127.0.0.1", address.server_port))
        answers = [pool.submit(ask, address, long) for _ in range(8)]
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        assert [answer.result()[0] for answer in answers] == [200] * 8
        assert process.wait(timeout=20) == 0
        idle.close()
    # A line for each request, and nothing of TensorFlow.
    assert all(line.startswith("127.0.0.1 - - [") for line in log.read_text().splitlines())


def test_a_signal_at_any_line_of_the_wait_ends_the_program(folder, model, monkeypatch):
    """Raises SIGTERM at each line that the main thread runs from its call of `serve_until` on, one after the other."""
    monkeypatch.setattr("albert_tf.serving.exports.load", lambda path: model)
    settings, servers = serve.ServeSettings(folder=str(folder), port=0), []
    make = Server.__init__
    monkeypatch.setattr(Server, "__init__", lambda *args: (servers.append(args[0]), make(*args))[1])

    def stop_after(num_lines: int) -> bool:
        """Serves; returns whether so many lines were run before the fallback, half a second later."""
        left = [num_lines]

        def trace(frame, event, _):
            if frame.f_code.co_name not in ("serve_until", "wait"):
                return None
            left[0] -= event == "line"
            if not left[0]:
                sys.settrace(None)
                signal.raise_signal(signal.SIGTERM)
            return trace

        monkeypatch.setattr(serve, "print", lambda *_, **__: sys.settrace(trace), raising=False)
        fallback = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM))
        fallback.start()
        serve.main(LimitSettings(), settings)
        fallback.cancel()
        return left[0] <= 0

    def fail(*_):
        servers[-1].shutdown()
        raise TimeoutError("the signal did not end the server")

    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    handlers[signal.SIGALRM] = signal.signal(signal.SIGALRM, fail)
    signal.alarm(20)
    try:
        reached = list(itertools.takewhile(stop_after, range(1, 30)))
    finally:
        signal.alarm(0)
        sys.settrace(None)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert reached


def test_a_damaged_export_and_a_port_in_use_are_named(folder, model, server, tmp_path):
    with pytest.raises(UserError, match="expected the folder of an export: a SavedModel in a num"):
        make_server(str(tmp_path), 0)
    (tmp_path / "1").mkdir()
    (tmp_path / "1/saved_model.pb").write_bytes(b"x" * 99)
    with pytest.raises(UserError, match="1: no usable SavedModel"):
        make_server(str(tmp_path), 0)
    with pytest.raises(UserError, match=r"port \d+: cannot be used \(Address already in use"):
        make_server(str(folder), server.server_port)
