"""A server for an exported model with TensorFlow Serving's REST API.

A thread for each connection reads a request, checks it and waits; another thread joins waiting requests and runs the
model. Everything that a client could use up has a limit (`LimitSettings`).
"""

import base64
import concurrent.futures
import contextlib
import dataclasses
import json
import math
import os
import queue
import re
import socket
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  (its operations tokenize)

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line
from albert_tf.serving import embeddings_route, exports, onnx_model, v2_route
from albert_tf.serving.settings import LimitSettings
from albert_tf.text.tokenizer import check_words

_POLL_SECONDS = 0.1  # how often deadlines are checked
_ERROR_READ_SECONDS = 1.0  # time for a client to read an error before the connection is closed
_SLOW_SECONDS = 1.0  # a client that takes longer to send a request is disconnected if others wait
_BUSY = "the server is busy; try again later"


class RequestError(UserError):
    """A request that cannot be answered; `status` is the HTTP status."""

    def __init__(self, message: str, status: int = 400):
        super().__init__(message)
        self.status = status


# --- Requests ---


def parse(
    model, request: dict[str, Any], limits: LimitSettings
) -> tuple[str, dict[str, np.ndarray], bool]:
    """The signature's name in a request, its inputs, and whether they were given in rows."""
    layouts = {"instances", "inputs"} & request.keys()
    if len(layouts) != 1 or not request.keys() <= {"signature_name", *layouts}:
        raise RequestError(
            'expected "instances" or "inputs", and perhaps "signature_name";'
            f" got {', '.join(map(repr, request)) or 'nothing'}"
        )
    signature_name = request.get("signature_name", "serving_default")
    if signature_name not in list(model.signatures):
        known = ", ".join(sorted(model.signatures))
        raise RequestError(f"signature_name is {signature_name!r}; expected one of {known}")
    signature = model.signatures[signature_name]
    specs = dict(sorted(signature.structured_input_signature[1].items()))  # loaded in any order
    in_rows = layouts == {"instances"}
    columns = (columns_of_rows if in_rows else columns_by_name)(request[layouts.pop()], specs)
    inputs = {name: array_of(columns[name], specs[name]) for name in specs}
    sizes = {name: len(array) for name, array in inputs.items()}
    if len(set(sizes.values())) > 1 or 0 in sizes.values():
        raise RequestError(f"expected as many rows, at least one, in every input; got {sizes}")
    if max(sizes.values(), default=0) > limits.max_instances:
        raise RequestError(f"expected at most {limits.max_instances} rows; got {sizes}", 413)
    for text in (text for array in inputs.values() if array.dtype == object for text in array.flat):
        try:
            check_words(text.decode(errors="replace"), limits.max_word_characters)
        except UserError as error:
            raise RequestError(str(error), 413) from None
    if most_values(signature, inputs) > limits.max_computed_values:
        raise RequestError("the outputs would be too large; send fewer or shorter rows", 413)
    return signature_name, inputs, in_rows


def most_values(signature, inputs: dict[str, np.ndarray]) -> int:
    """Approximate number of values of the largest output; an unknown length is at most that of an input."""
    largest = max((array.size for array in inputs.values()), default=1)
    shapes = [output.shape for output in signature.structured_outputs.values()]
    sizes = [math.prod(filter(None, shape)) for shape in shapes if shape.rank is not None]
    return largest * max(sizes, default=1)


def columns_of_rows(rows: Any, specs: dict[str, tf.TensorSpec]) -> dict[str, list]:
    """The inputs in "instances": a list of objects, or of values if there is one input."""
    if not isinstance(rows, list) or not specs:
        raise RequestError('"instances" must be a list; a signature without inputs has none')
    if len(specs) == 1 and not any(
        isinstance(row, dict) and row.keys() == set(specs) for row in rows
    ):
        return {name: rows for name in specs}
    if set(specs) == {"text_a", "text_b"}:  # one text needs no name
        rows = [{"text_a": row, "text_b": ""} if isinstance(row, str) else row for row in rows]
    if not all(isinstance(row, dict) and row.keys() == set(specs) for row in rows):
        raise RequestError(f'every one of "instances" must be an object of {", ".join(specs)}')
    return {name: [row[name] for row in rows] for name in specs}


def columns_by_name(columns: Any, specs: dict[str, tf.TensorSpec]) -> dict[str, Any]:
    """The inputs in "inputs": an object of lists, or a list if there is one input."""
    if len(specs) == 1 and isinstance(columns, list):
        return {name: columns for name in specs}
    if not isinstance(columns, dict) or columns.keys() != set(specs):
        raise RequestError(f'"inputs" must be an object of lists: {", ".join(specs) or "empty"}')
    return columns


def array_of(value: Any, spec: tf.TensorSpec) -> np.ndarray:
    """The value of an input as an array, with strings as bytes."""
    is_text = spec.dtype == tf.string

    def checked(value: Any, depth: int) -> Any:
        if depth and isinstance(value, list):
            return [checked(element, depth - 1) for element in value]
        if not depth and is_text and isinstance(value, str):
            return value.encode()
        if not depth and is_text and isinstance(value, dict) and value.keys() == {"b64"}:
            return base64.b64decode(value["b64"], validate=True)
        kinds = () if is_text else (int, float) if spec.dtype.is_floating else (int,)
        # `tf.constant` may truncate a number that is too large.
        if not depth and type(value) in kinds and spec.dtype.min <= value <= spec.dtype.max:
            return value
        raise TypeError

    try:
        # `tf.constant` is used because an array of objects would accept lists of different lengths.
        tensor = tf.constant(checked(value, spec.shape.rank), spec.dtype)
    except (TypeError, ValueError, OverflowError):
        tensor = None
    if tensor is None or not spec.shape.is_compatible_with(tensor.shape):
        kind = 'strings, or {"b64": ...}' if is_text else f"numbers ({spec.dtype.name})"
        lists = "a list" + " of lists of equal lengths" * (spec.shape.rank - 1)
        raise RequestError(f"{spec.name}: expected {lists} of {kind}")
    return tensor.numpy()


def answer_of(outputs: dict[str, np.ndarray], in_rows: bool) -> dict[str, Any]:
    """The content of an answer."""
    values: Any = {name: listed(array) for name, array in outputs.items()}
    if len(values) == 1:
        values = values.popitem()[1]
    elif in_rows:
        rows = zip(*values.values(), strict=True)
        values = [dict(zip(values, row, strict=True)) for row in rows]
    return {"predictions" if in_rows else "outputs": values}


def check_outputs(outputs: dict[str, np.ndarray], limits: LimitSettings) -> None:
    """Checks that outputs can be sent."""
    num_values = sum(array.size for array in outputs.values())
    if num_values > limits.max_answer_values:
        raise RequestError(
            f"the answer has {num_values:,} values, at most {limits.max_answer_values:,} are sent;"
            " send fewer or shorter rows",
            413,
        )
    if not all(array.dtype == object or np.isfinite(array).all() for array in outputs.values()):
        raise RequestError("the outputs are not all finite numbers, which JSON requires", 500)


def listed(array: np.ndarray) -> Any:
    """The values of an array as JSON values."""
    if array.dtype != object:
        return array.tolist()
    texts = [content.decode(errors="replace") for content in array.flat]
    return np.array(texts, object).reshape(array.shape).tolist()


# --- The model ---


@dataclasses.dataclass(frozen=True, eq=False)
class Waiting:
    """A request that waits for the model."""

    signature_name: str
    inputs: dict[str, np.ndarray]
    deadline: float  # of the answer, in time.monotonic()
    result: concurrent.futures.Future = dataclasses.field(default_factory=concurrent.futures.Future)

    def end(self, result: dict[str, np.ndarray] | Exception) -> None:
        """Gives the outputs or an error to who waits; of two, the first one counts."""
        with contextlib.suppress(concurrent.futures.InvalidStateError):
            if isinstance(result, Exception):
                self.result.set_exception(result)
            else:
                self.result.set_result(result)

    @property
    def num_rows(self) -> int:
        """B; 0 without inputs."""
        return max(map(len, self.inputs.values()), default=0)

    @property
    def key(self) -> tuple:
        """Requests with equal keys can be joined."""
        return self.signature_name, *(array.shape[1:] for array in self.inputs.values())


class Batches:
    """Runs a model in one thread, on several requests at a time; `num_batches` counts how often it ran."""

    def __init__(self, model, limits: LimitSettings):
        self.num_batches = 0
        self._signatures, self._limits = model.signatures, limits
        # At most one for each connection.
        self._arrived: queue.SimpleQueue[Waiting] = queue.SimpleQueue()
        self._left: list[Waiting] = []  # requests that did not fit into a batch
        self._running: tuple[float, list[Waiting]] | None = (
            None  # the deadline of the computed batch
        )
        self._start_thread()

    def _start_thread(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def outputs(self, signature_name: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs of a signature; waits for them."""
        seconds = 3 * self._limits.compute_seconds
        request = Waiting(signature_name, inputs, time.monotonic() + seconds)
        self._arrived.put(request)
        try:
            return request.result.result(seconds)
        except TimeoutError:
            raise RequestError(_BUSY, 503) from None

    def end_late(self) -> None:
        """Rejects the requests of a computation that takes too long; another thread answers the next ones.

        TensorFlow's operations cannot be stopped: the late thread ends after them.
        """
        if (running := self._running) and time.monotonic() > running[0]:
            self._running = None
            self._start_thread()
            limit = f"{self._limits.compute_seconds:g} seconds; send fewer or shorter rows"
            for request in running[1]:
                request.end(RequestError(f"the computation takes longer than {limit}", 503))

    def _run(self) -> None:
        while threading.current_thread() is self._thread:
            self._answer(self._next_batch())

    def _next_batch(self) -> list[Waiting]:
        """The oldest request, and the requests that arrive in time and can be joined with it."""
        left, self._left = self._left or [self._arrived.get()], []
        first, *left = left
        batch, num_rows = [first], first.num_rows
        end = time.monotonic() + self._limits.batch_wait_ms / 1000
        while num_rows < self._limits.max_batch_size and self._can_be_joined(first):
            try:
                wait = max(0, end - time.monotonic())
                request = left.pop(0) if left else self._arrived.get(timeout=wait)
            except queue.Empty:
                break
            fits = num_rows + request.num_rows <= self._limits.max_batch_size
            if fits and request.key == first.key:
                batch.append(request)
                num_rows += request.num_rows
            else:
                self._left.append(request)
        self._left += left
        return batch

    def _can_be_joined(self, request: Waiting) -> bool:
        """Whether the shape of a row's outputs is independent of the other rows."""
        outputs = self._signatures[request.signature_name].structured_outputs.values()
        return all(output.shape.rank and None not in output.shape[1:] for output in outputs)

    def _computed(self, batch: list[Waiting]) -> dict[str, np.ndarray]:
        """The outputs for a batch."""
        inputs = {
            name: tf.constant(np.concatenate([request.inputs[name] for request in batch]))
            for name in batch[0].inputs
        }
        self._running = (time.monotonic() + self._limits.compute_seconds, batch)
        try:
            return {
                # Strings are objects; a scalar string would be bytes instead of an array.
                name: np.array(tensor.numpy(), object if tensor.dtype == tf.string else None)
                for name, tensor in self._signatures[batch[0].signature_name](**inputs).items()
            }
        finally:
            if threading.current_thread() is self._thread:
                self._running = None

    def _answer(self, batch: list[Waiting]) -> None:
        batch = [request for request in batch if time.monotonic() < request.deadline]
        if not batch:
            return
        self.num_batches += 1
        try:
            outputs = self._computed(batch)
        except Exception as error:
            if len(batch) == 1:
                batch[0].end(error)
                return
            for request in batch:  # one of them causes the error
                self._answer([request])
            return
        if len(batch) == 1:
            batch[0].end(outputs)
            return
        start = 0
        for request in batch:
            rows = slice(start, start + request.num_rows)
            request.end({name: array[rows] for name, array in outputs.items()})
            start += request.num_rows


# --- HTTP ---


class Metrics:
    """Counts requests, for Prometheus."""

    def __init__(self):
        self._lock = threading.Lock()
        self._seconds: dict[int, list[float]] = {}  # status -> number of answers, their seconds

    def count(self, status: int, seconds: float) -> None:
        """Counts an answer."""
        with self._lock:
            row = self._seconds.setdefault(status, [0, 0.0])
            row[0] += 1
            row[1] += max(0.0, seconds)

    def text(self, num_batches: int) -> str:
        """The counts in Prometheus' text format."""
        lines = ["# TYPE albert_tf_batches_total counter", f"albert_tf_batches_total {num_batches}"]
        lines.append("# TYPE albert_tf_request_seconds summary")
        with self._lock:
            for status, (number, seconds) in sorted(self._seconds.items()):
                label = f'{{status="{status}"}}'
                lines.append(f"albert_tf_request_seconds_count{label} {number:.0f}")
                lines.append(f"albert_tf_request_seconds_sum{label} {seconds:.6f}")
        return "\n".join(lines) + "\n"


class Server(ThreadingHTTPServer):
    """A server of a model on this machine; port 0 selects a free one."""

    request_queue_size = 1024  # connections that the system keeps until they are accepted

    def __init__(self, model, name: str, version: str, port: int, limits: LimitSettings):
        self.model, self.name, self.version, self.limits = model, name, version, limits
        self.batches = Batches(model, limits)
        self.metrics = Metrics()
        self.urls = (f"/v1/models/{name}", f"/v1/models/{name}/versions/{version}")
        # Parsed JSON takes many times its size, so one request is parsed at a time.
        self.parsing = threading.Lock()
        self._deadlines: dict[socket.socket, float] = {}
        self._reading_since: dict[socket.socket, float] = {}
        self._refused: set[socket.socket] = set()
        self._threads_of_clients = concurrent.futures.ThreadPoolExecutor(limits.max_connections)
        super().__init__(("127.0.0.1", port), Handler)

    def process_request(self, request, client_address) -> None:
        """Starts a thread for a connection, in place of a slow client if need be, or refuses the connection."""
        if not self._has_room():
            self._end_slowest()
        if self._has_room():
            self.limit_time(request, self.limits.request_seconds, is_reading=True)
            self._threads_of_clients.submit(self.process_request_thread, request, client_address)
            return
        body = json.dumps({"error": _BUSY})
        head = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
        content = f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        with contextlib.suppress(OSError):
            request.setblocking(False)
            request.send(content.encode())
            request.shutdown(socket.SHUT_WR)
        if len(self._refused) < self.limits.max_connections:
            self._refused.add(request)
            self.limit_time(request, _ERROR_READ_SECONDS)
        else:
            request.close()

    def _has_room(self) -> bool:
        return len(self._deadlines) - len(self._refused) < self.limits.max_connections

    def _end_slowest(self) -> None:
        """Ends the connection that has sent no whole request for the longest time, unless that time is short."""
        waiting = [(since, id(one), one) for one, since in list(self._reading_since.items())]
        since, _, slowest = min(waiting, default=(math.inf, 0, None))
        if slowest and time.monotonic() - since > _SLOW_SECONDS:
            self._refused.add(slowest)
            with contextlib.suppress(OSError):
                slowest.shutdown(socket.SHUT_RDWR)
            self._reading_since.pop(slowest, None)

    def limit_time(
        self, connection: socket.socket, seconds: float, *, is_reading: bool = False
    ) -> None:
        """Ends a connection after some time, unless it gets another limit before then."""
        self._deadlines[connection] = time.monotonic() + seconds
        self._reading_since.pop(connection, None)
        if is_reading:
            self._reading_since[connection] = time.monotonic()

    def service_actions(self) -> None:
        """Ends connections and computations that take too long; their threads then neither read nor write."""
        self.batches.end_late()
        for connection, deadline in list(self._deadlines.items()):
            if time.monotonic() > deadline:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                if connection in self._refused:
                    self.shutdown_request(connection)

    def shutdown_request(self, request) -> None:
        """Closes a connection."""
        for known in (self._deadlines, self._reading_since):
            known.pop(request, None)
        self._refused.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request, client_address) -> None:
        """Reports an error of a thread, unless the reason is that the client has disconnected."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def serve_until(self, wait: Callable[[], object]) -> None:
        """Serves until `wait` returns; then answers the requests that have been read, and closes."""
        thread = threading.Thread(target=self.serve_forever, args=(_POLL_SECONDS,))
        thread.start()
        wait()
        self.shutdown()
        thread.join()
        for connection in list(self._deadlines):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RD)
        while self._deadlines:
            self.service_actions()
            time.sleep(_POLL_SECONDS)
        self._threads_of_clients.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of a connection one after the other."""

    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.0"  # answers to HTTP/0.9 have no status
    disable_nagle_algorithm = True  # otherwise a short answer waits 40 ms for an acknowledgement
    server: Server
    started = math.inf  # when the body of the request was being read, in time.monotonic()

    def parse_request(self) -> bool:
        """Reads the headers; the time of an answer counts from there."""
        self.started = time.monotonic()
        return super().parse_request()

    def handle_one_request(self) -> None:
        """Reads and answers a request in limited time."""
        seconds = self.server.limits.request_seconds
        self.server.limit_time(self.connection, seconds, is_reading=True)
        super().handle_one_request()

    def do_GET(self) -> None:
        """Answers with the state of the model."""
        # A body would be read as the next request.
        self.close_connection |= (
            "Content-Length" in self.headers or "Transfer-Encoding" in self.headers
        )
        if self.path == "/metrics":
            self.answer(200, self.server.metrics.text(self.server.batches.num_batches))
            return
        if found := v2_route.state(self.path, self.server.name, self.server.version):
            self.answer(200, found)
            return
        if self.path not in self.server.urls:
            self.answer(404, {"error": f"expected GET {self.server.urls[0]}"})
            return
        status = {"error_code": "OK", "error_message": ""}
        state = {"version": self.server.version, "state": "AVAILABLE", "status": status}
        self.answer(200, {"model_version_status": [state]})

    def do_POST(self) -> None:
        """Answers with the outputs of a signature."""
        try:
            length = self.content_length()
            content = self.rfile.read(length)
            if len(content) < length:  # the client has disconnected, or takes too long
                self.close_connection = True
                return
            self.answer(200, self.predictions(content))
        except UserError as error:
            self.answer(getattr(error, "status", 400), {"error": str(error)})

    def content_length(self) -> int:
        """The size of the request's body."""
        lengths = self.headers.get_all("Content-Length", [])
        limit = self.server.limits.max_request_bytes
        is_chunked = "Transfer-Encoding" in self.headers
        if is_chunked or len(lengths) != 1 or not (lengths[0].isascii() and lengths[0].isdigit()):
            self.close_connection = True
            status = 400 if lengths and not is_chunked else 411
            raise RequestError("expected the bytes of the body in one Content-Length", status)
        if len(lengths[0]) > 18 or int(lengths[0]) > limit:
            self.close_connection = True
            raise RequestError(f"expected at most {limit:,} bytes; got {lengths[0][:18]}", 413)
        return int(lengths[0])

    def predictions(self, content: bytes) -> dict[str, Any]:
        """The answer to the body of a request."""
        server = self.server
        paths = [f"{url}:predict" for url in server.urls]
        v2_path = f"{v2_route.PREFIX}models/{server.name}/infer"
        if self.path not in [*paths, embeddings_route.PATH, v2_path]:
            known = f"{paths[0]}, {v2_path} or {embeddings_route.PATH}"
            raise RequestError(f"expected POST {known}", 404)
        server.limit_time(self.connection, float("inf"))
        try:
            with server.parsing:
                request = asked = files.parse_json(content, "request")
                if self.path == v2_path:
                    request = v2_route.request_of(asked)
                elif self.path == embeddings_route.PATH:
                    request = embeddings_route.request_of(asked, list(server.model.signatures))
                signature_name, inputs, in_rows = parse(server.model, request, server.limits)
            outputs = server.batches.outputs(signature_name, inputs)
            if signature_name == "tokenization_info":  # the folder is nobody's business
                file = os.path.basename(outputs["vocab_file"].item())
                outputs["vocab_file"] = np.array(file, object)
            check_outputs(outputs, server.limits)
            if self.path == v2_path:
                return v2_route.answer(outputs, asked, listed, server.name, server.version)
            if self.path == embeddings_route.PATH:
                return embeddings_route.answer(outputs, asked, server.name)
            return answer_of(outputs, in_rows)
        except UserError:
            raise
        except tf.errors.InvalidArgumentError as error:
            # The message is in front of the name of the node that failed.
            message = re.search(r"^(.*)\n\s*\[\[", error.message, re.MULTILINE)
            raise RequestError(message[1] if message else first_line(error)) from None
        except Exception as error:  # a defect must not stop the server
            raise RequestError(f"{type(error).__name__}: {first_line(error)}", 500) from error

    def handle_expect_100(self) -> bool:
        """Tells the client to send a body that will be read."""
        try:
            self.content_length()
        except RequestError as error:
            self.answer(error.status, {"error": str(error)})
            return False
        return super().handle_expect_100()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answers a request that is not HTTP, or has another method."""
        self.close_connection = True
        if code == 501:
            code, message = 405, f"expected GET or POST, got {self.command}"
        self.answer(code, {"error": message or explain or "not a request of HTTP"})

    def answer(self, status: int, content: dict[str, Any] | str) -> None:
        """Sends an answer, JSON or text; if the connection is closed afterwards, waits until the client has read it."""
        is_text = isinstance(content, str)
        data = (content if isinstance(content, str) else json.dumps(content)).encode()
        self.server.metrics.count(status, time.monotonic() - self.started)
        self.server.limit_time(self.connection, self.server.limits.request_seconds)
        self.send_response(status)
        kind = "text/plain; version=0.0.4" if is_text else "application/json"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        if status == 405:
            self.send_header("Allow", "GET, POST")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)
        if self.close_connection:
            # If a connection is closed before everything is read, the client loses the answer.
            self.server.limit_time(self.connection, _ERROR_READ_SECONDS)
            self.connection.shutdown(socket.SHUT_WR)
            while self.connection.recv(1 << 16):
                pass


def make_server(folder: str, port: int, limits: LimitSettings = LimitSettings()) -> Server:  # noqa: B008 - frozen
    """A server for the newest version in a folder; the folder's name is the model's name."""
    if onnx_model.is_export(folder):
        from albert_tf.serving.onnx_server import Served

        path, model = "1", Served(folder)
    else:
        path = newest_version(folder)
        model = exports.load(path)
    name = os.path.basename(os.path.abspath(folder))
    try:
        return Server(model, name, os.path.basename(path), port, limits)
    except OSError as error:
        raise UserError(f"port {port}: cannot be used ({error.strerror})") from None


def newest_version(folder: str) -> str:
    """The path of the highest version in the folder of an export."""
    versions = (
        [name for name in os.listdir(folder) if name.isdigit()] if os.path.isdir(folder) else []
    )
    if not versions:
        raise UserError(
            f"{folder}: expected the folder of an export: a SavedModel in a numbered version, or {onnx_model.MODEL}"
        )
    return os.path.join(folder, max(versions, key=int))
