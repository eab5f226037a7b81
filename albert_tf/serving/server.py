"""An HTTP server for a predictor: a page to try the model, and the routes of other servers.

The page (`page/`) shows answers to a person. /v1/models/NAME:predict takes rows as TensorFlow Serving does and answers
as `Predictor.predict` does; /v2/models/NAME/infer is that of KServe and Triton. `openai_routes.py` has those of
OpenAI's API, `web.py` what comes before and after all routes.
"""

import asyncio
import dataclasses
import functools
import json
import math
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import numpy as np
import prometheus_client as prometheus
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from albert_tf.core import files
from albert_tf.core.errors import UserError, shortened
from albert_tf.serving.batches import Batches
from albert_tf.serving.openai_routes import OpenAIRoutes
from albert_tf.serving.page.html import server_page
from albert_tf.serving.settings import LimitSettings
from albert_tf.serving.web import ApiError, check_is_json, error_response
from albert_tf.tasks.predictor import Predictor
from albert_tf.tasks.text_report import TokenCounts

_TYPES = {"b": "BOOL", "i": "INT64", "f": "FP64", "U": "BYTES"}  # NumPy's kind -> the protocol's

# From the JSON object of a request to that of its answer.
Answer = Callable[[dict[str, Any]], Coroutine[Any, Any, dict[str, Any]]]


class Routes:
    """The answers to requests; `app` is the server as an ASGI application.

    Args:
      name: the model's name in addresses.
      source: the model's folder, if its model card is to be read.
      version: the number of the model's version in addresses.
    """

    def __init__(
        self,
        predictor: Predictor,
        name: str,
        limits: LimitSettings,
        source: str = "",
        version: str = "1",
    ):
        self._predictor = predictor
        self._name = name
        self._version = version
        self._source = source
        self._limits = limits

        self._metrics = prometheus.CollectorRegistry()
        self._seconds = prometheus.Histogram(
            "albert_tf_request_seconds", "Time", registry=self._metrics
        )
        self._errors = self._counter("albert_tf_errors", "Errors", ["status"])
        self._tokens = self._counter("albert_tf_tokens", "Tokens of texts")
        self._unknown_tokens = self._counter(
            "albert_tf_unknown_tokens", "Tokens that the vocabulary does not know"
        )
        calls_of_model = self._counter("albert_tf_batches", "Batches")

        self._tokens_so_far = TokenCounts()  # those that the counters have
        self._printed_remarks: set[str] = set()  # kinds of serious remarks
        self._batches = Batches(predictor.batch_size, limits, calls_of_model)
        self._openai = OpenAIRoutes(predictor, name, limits, self._batches)

        errors = (UserError, HTTPException, ClientDisconnect, Exception)
        self.app = Starlette(
            routes=self._routes(), exception_handlers=dict.fromkeys(errors, self._error)
        )

    def _counter(self, name: str, help: str, labels: Sequence[str] = ()) -> prometheus.Counter:
        return prometheus.Counter(name, help, labels, registry=self._metrics)

    def _routes(self) -> list[Route]:
        name = self._name
        openai = self._openai
        version = self._version
        # Where TensorFlow Serving has a version.
        in_serving = f"/v1/models/{name}/versions/{version}"
        no_error = {"error_code": "OK", "error_message": ""}
        status = {"version": version, "state": "AVAILABLE", "status": no_error}
        state = {"name": name, "ready": True, "model_version_status": [status]}
        tensors = {"name": name, **metadata(self._predictor, version)}

        def ready(_request: Request) -> Response:
            return JSONResponse(state)

        def model(_request: Request) -> Response:
            return JSONResponse({**openai.model(), **state})

        def models(_request: Request) -> Response:
            return JSONResponse(openai.models())

        def tensors_of_model(_request: Request) -> Response:
            return JSONResponse(tensors)

        def no_metadata(_request: Request) -> Response:
            reason = "answers have another form than TensorFlow Serving's, and so no metadata of it"
            raise ApiError(404, f"{reason}; /v2/models/{name} names the tensors of a request")

        def metrics(_request: Request) -> Response:
            return PlainTextResponse(prometheus.generate_latest(self._metrics))

        return [
            Route("/", self._page),
            Route("/v1/models", models),
            Route(f"/v1/models/{name}", model),
            Route(in_serving, model),
            Route(f"/v1/models/{name}/metadata", no_metadata),
            Route(f"{in_serving}/metadata", no_metadata),
            Route(f"/v2/models/{name}", tensors_of_model),
            Route("/metrics", metrics),
            Route(f"/v2/models/{name}/ready", ready),
            Route("/v2/health/ready", ready),
            Route("/v2/health/live", ready),
            self._post_route(f"/v1/models/{name}:predict", self._predict),
            self._post_route(f"{in_serving}:predict", self._predict),
            self._post_route(f"/v2/models/{name}/infer", self._infer),
            self._post_route("/v1/embeddings", openai.embeddings),
            self._post_route("/v1/rerank", openai.rerank),
            self._post_route("/rerank", openai.rerank),
        ]

    def _post_route(self, path: str, answer: Answer) -> Route:
        return Route(path, functools.partial(self._post, answer), methods=["POST"])

    async def _post(self, answer: Answer, request: Request) -> Response:
        check_is_json(request.headers)
        with self._seconds.time():
            body = await self._read(request)
            content = await _unless_client_leaves(request, answer(body))
        self._report_texts()
        return JSONResponse(content)

    async def _read(self, request: Request) -> dict[str, Any]:
        """The JSON object of a request, of which neither the whole nor a text may be too long."""
        max_bytes = self._limits.max_request_bytes
        content = bytearray()
        async for part in request.stream():
            content += part
            if len(content) > max_bytes:
                raise ApiError(413, f"expected at most {max_bytes:,} bytes (--max_request_bytes)")

        body = files.parse_json(bytes(content), "request")
        _check_texts(body, self._limits.max_text_characters)
        return body

    def _report_texts(self) -> None:
        """Counts the tokens since the last request, and says once if many are unknown, or most texts are cut."""
        tokens = dataclasses.replace(self._predictor.report.tokens)  # a copy
        new_tokens = tokens.since(self._tokens_so_far)
        self._tokens.inc(new_tokens.tokens)
        self._unknown_tokens.inc(new_tokens.unknown)
        self._tokens_so_far = tokens

        for kind, line in self._predictor.serious_remarks().items():
            if kind not in self._printed_remarks:
                self._printed_remarks.add(kind)
                print(line, file=sys.stderr, flush=True)

    async def _error(self, request: Request, error: Any) -> Response:
        """The answer to a request that fails; what went wrong inside the server is named by its type alone."""
        if isinstance(error, HTTPException):
            status = error.status_code
            message = error.detail
        elif isinstance(error, UserError | ClientDisconnect):
            status = 400
            message = str(error)
        else:
            status = 500
            message = type(error).__name__
        if message == "Not Found":
            message = f"Not Found; the model here is {self._name}, version {self._version}"

        self._errors.labels(status).inc()
        return error_response(request.url.path, status, message, error)

    async def _page(self, _request: Request) -> Response:
        return HTMLResponse(server_page(self._predictor, self._name, self._source))

    async def _answers(self, items: Any) -> list:
        """The predictor's answers to a request's items, a list of them."""
        max_items = self._limits.max_instances
        expected = f"expected a list of 1 to {max_items:,} items"
        if not isinstance(items, list) or not items:
            raise ApiError(400, f"{expected}, got {shortened(items)}")
        if len(items) > max_items:
            raise ApiError(413, f"{expected}, got {len(items):,}")

        examples = [self._predictor.check(item) for item in items]
        return await self._batches.answers(self._predictor.answered, examples)

    async def _predict(self, body: dict[str, Any]) -> dict[str, Any]:
        # Clients of TensorFlow Serving may send the name of a signature, too.
        if "inputs" in body:
            raise UserError(
                'expected "instances", a list of items; "inputs" with columns are not read'
            )
        if body.keys() - {"signature_name"} != {"instances"}:
            raise UserError(f'expected "instances", a list; got {shortened(list(body))}')
        return {"predictions": await self._answers(body["instances"])}

    async def _infer(self, body: dict[str, Any]) -> dict[str, Any]:
        items = rows_of(body.get("inputs"))
        answers = await self._answers(items)
        return {
            "model_name": self._name,
            "id": body.get("id", ""),
            "outputs": tensors_of(answers),
        }


def _check_texts(body: Any, max_characters: int) -> None:
    """Checks the length of every text in a JSON value, at any depth, but not that of the keys of objects."""
    waiting: list[Any] = [body]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str) and len(part) > max_characters:
            expected = f"expected texts of at most {max_characters:,} characters"
            raise ApiError(413, f"{expected} (--max_text_characters), got {len(part):,}")
        if isinstance(part, dict):
            waiting += part.values()
        if isinstance(part, list):
            waiting += part


async def _unless_client_leaves(request: Request, answer: Coroutine) -> Any:
    """The result of a coroutine, which is cancelled if the client of a request, read in full, leaves before."""

    async def client_leaves() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    answering = asyncio.create_task(answer)
    leaving = asyncio.create_task(client_leaves())
    try:
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            raise ClientDisconnect
        return answering.result()
    finally:
        answering.cancel()
        leaving.cancel()


# --- The open inference protocol of KServe and Triton ---


def metadata(predictor: Predictor, version: str) -> dict[str, Any]:
    """What clients of the open inference protocol ask first: the tensors of a request.

    Example: the prompts "passage", "option A" and "option B" -> `passage` [-1] and `options` [-1, 2].
    """
    shapes: dict[str, list[int]] = {}
    num_options = 0
    for prompt in predictor.prompts or ("text",):
        if prompt.startswith("option "):
            num_options += 1
            shapes["options"] = [-1, num_options]
        else:
            shapes[prompt] = [-1]

    inputs = [{"name": name, "datatype": "BYTES", "shape": shape} for name, shape in shapes.items()]
    return {"versions": [version], "platform": "albert_tf", "inputs": inputs, "outputs": []}


def rows_of(tensors: Any) -> list[dict[str, Any]]:
    """Items from tensors of the open inference protocol.

    Example: `text` of ["A", "B"] and `text_2` of ["C", "D"] -> {"text": "A", "text_2": "C"} and {"text": "B", ...}.
    """
    if not isinstance(tensors, list):
        tensors = [tensors]
    columns = dict(_column_of(tensor) for tensor in tensors)
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1:
        raise UserError("expected tensors with equal first dimensions")
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _column_of(tensor: Any) -> tuple[str, list]:
    """The name of a tensor, and its data as nested lists; "texts" is also called "text"."""
    fields = tensor if isinstance(tensor, Mapping) else {}
    name = fields.get("name")
    shape = fields.get("shape")
    data = fields.get("data")
    if not isinstance(name, str) or not isinstance(shape, list) or not isinstance(data, list):
        raise UserError(f"expected a tensor with name, shape and data; got {shortened(tensor)}")

    # Clients send data flat or nested: both have the shape that they say.
    array = np.array(data, object)
    has_sizes = all(type(size) is int and 0 <= size <= array.size for size in shape)
    has_few_dimensions = 0 < len(shape) <= 8
    if not has_sizes or not has_few_dimensions or math.prod(shape) != array.size:
        raise UserError(f"{shortened(name)}: the shape is not that of {array.size} values")
    return "text" if name == "texts" else name, array.reshape(shape).tolist()


def tensors_of(answers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A tensor [B, ...] for each key of answers; lists of anything but numbers are JSON texts."""
    if any(answer.keys() != answers[0].keys() for answer in answers):
        raise UserError("the answers are of different kinds; send texts of one kind")

    tensors = []
    for name in answers[0]:
        rows = [_without_keys(answer[name]) for answer in answers]
        lists = [row for row in rows if isinstance(row, list)]
        if not all(_has_numbers(row) for row in lists):
            rows = [json.dumps(row, ensure_ascii=False) for row in rows]

        array = np.array(rows)
        tensor = {
            "name": name,
            "datatype": _TYPES[array.dtype.kind],
            "shape": list(array.shape),
            "data": array.ravel().tolist(),
        }
        tensors.append(tensor)
    return tensors


def _without_keys(answer: Any) -> Any:
    """Example: the probabilities {"no": 0.25, "yes": 0.75} -> [0.25, 0.75]; anything but an object stays."""
    return list(answer.values()) if isinstance(answer, Mapping) else answer


def _has_numbers(row: list) -> bool:
    return bool(row) and isinstance(row[0], float)
