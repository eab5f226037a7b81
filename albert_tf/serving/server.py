"""An HTTP server for a predictor: a page to try the model, and the routes of other servers.

`page.html` shows answers to a person. /v1/models/NAME:predict takes rows as TensorFlow Serving does and answers as
`Predictor.predict` does; /v2/models/NAME/infer is that of KServe and Triton. `openai_routes.py` has those of OpenAI's
API, `web.py` what comes before and after all routes.
"""

import asyncio
import dataclasses
import functools
import importlib.resources
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
from albert_tf.serving.settings import LimitSettings
from albert_tf.serving.web import ApiError, check_is_json, error_response
from albert_tf.tasks.predictor import Predictor
from albert_tf.tasks.text_report import TokenCounts

_TYPES = {"b": "BOOL", "i": "INT64", "f": "FP64", "U": "BYTES"}  # NumPy's kind -> the protocol's

Answer = Callable[
    [dict[str, Any]], Coroutine[Any, Any, dict[str, Any]]
]  # to the JSON object of a request


class Routes:
    """The answers to requests; `app` is the server as an ASGI application."""

    def __init__(self, predictor: Predictor, name: str, limits: LimitSettings):
        self._predictor = predictor
        self._name = name
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
        self._counted = TokenCounts()
        self._warned: set[str] = set()  # kinds of serious remarks
        computed = self._counter("albert_tf_batches", "Batches")
        self._batches = Batches(predictor.batch_size, limits, computed)
        self._openai = OpenAIRoutes(predictor, name, limits, self._batches)
        errors = (UserError, HTTPException, ClientDisconnect, Exception)
        self.app = Starlette(
            routes=self._routes(), exception_handlers=dict.fromkeys(errors, self._error)
        )

    def _counter(self, name: str, help: str, labels: Sequence[str] = ()) -> prometheus.Counter:
        return prometheus.Counter(name, help, labels, registry=self._metrics)

    def _routes(self) -> list[Route]:
        name = self._name
        state = {"name": name, "ready": True, "model_version_status": [{"state": "AVAILABLE"}]}
        about = {"name": name, **metadata(self._predictor)}
        openai = self._openai
        gets: dict[str, Callable[[Request], Any]] = {
            "/": self._page,
            "/v1/models": lambda _: JSONResponse(openai.models()),
            f"/v1/models/{name}": lambda _: JSONResponse({**openai.model(), **state}),
            f"/v2/models/{name}": lambda _: JSONResponse(about),
            "/metrics": lambda _: PlainTextResponse(prometheus.generate_latest(self._metrics)),
        }
        for path in (f"/v2/models/{name}/ready", "/v2/health/ready", "/v2/health/live"):
            gets[path] = lambda _: JSONResponse(state)
        posts: dict[str, Answer] = {
            f"/v1/models/{name}:predict": self._predict,
            f"/v2/models/{name}/infer": self._infer,
            "/v1/embeddings": openai.embeddings,
            "/v1/rerank": openai.rerank,
            "/rerank": openai.rerank,
        }
        routes = [Route(path, answer) for path, answer in gets.items()]
        for path, answer in posts.items():
            routes.append(Route(path, functools.partial(self._post, answer), methods=["POST"]))
        return routes

    async def _post(self, answer: Answer, request: Request) -> Response:
        check_is_json(request.headers)
        with self._seconds.time():
            asked = await self._read(request)
            answered = await _unless_client_leaves(request, answer(asked))
        self._report_texts()
        return JSONResponse(answered)

    async def _read(self, request: Request) -> dict[str, Any]:
        content = bytearray()
        most = self._limits.max_request_bytes
        async for part in request.stream():
            content += part
            if len(content) > most:
                raise ApiError(413, f"expected at most {most:,} bytes (--max_request_bytes)")
        asked = files.parse_json(bytes(content), "request")
        most = self._limits.max_text_characters
        values: list[Any] = [asked]
        while values:
            value = values.pop()
            if isinstance(value, str) and len(value) > most:
                reason = f"expected texts of at most {most:,} characters (--max_text_characters)"
                raise ApiError(413, f"{reason}, got {len(value):,}")
            if isinstance(value, dict):
                values += value.values()
            if isinstance(value, list):
                values += value
        return asked

    def _report_texts(self) -> None:
        """Counts the tokens since the last request, and says once if many are unknown, or most texts are cut."""
        now = dataclasses.replace(self._predictor.report.tokens)
        new = now.since(self._counted)
        self._tokens.inc(new.tokens)
        self._unknown_tokens.inc(new.unknown)
        self._counted = now
        for kind, line in self._predictor.serious_remarks().items():
            if kind not in self._warned:
                self._warned.add(kind)
                print(line, file=sys.stderr, flush=True)

    async def _error(self, request: Request, error: Any) -> Response:
        is_known = isinstance(error, UserError | ClientDisconnect)
        status = getattr(error, "status_code", 400 if is_known else 500)
        message = getattr(error, "detail", str(error) if is_known else type(error).__name__)
        if message == "Not Found":
            message = f"Not Found; the model here is {self._name}"
        self._errors.labels(status).inc()
        return error_response(request.url.path, status, message, error)

    async def _page(self, _request: Request) -> Response:
        model = {name: getattr(self._predictor, name) for name in ("prompts", "expects")}
        model |= {"name": self._name, "kind": type(self._predictor).__name__}
        page = importlib.resources.files(__package__).joinpath("page.html").read_text("utf-8")
        return HTMLResponse(page.replace("__MODEL__", json.dumps(model).replace("<", "\\u003c")))

    async def _answers(self, items: Any) -> list:
        most = self._limits.max_instances
        if not isinstance(items, list) or not items:
            raise ApiError(400, f"expected a list of 1 to {most:,} items, got {shortened(items)}")
        if len(items) > most:
            raise ApiError(413, f"expected a list of 1 to {most:,} items, got {len(items):,}")
        examples = [self._predictor.check(item) for item in items]
        return await self._batches.answers(self._predictor.answered, examples)

    async def _predict(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked.keys() - {"signature_name"} != {"instances"}:  # that of TF Serving's clients
            raise UserError(f'expected "instances", a list; got {shortened(list(asked))}')
        return {"predictions": await self._answers(asked["instances"])}

    async def _infer(self, asked: dict[str, Any]) -> dict[str, Any]:
        outputs = tensors_of(await self._answers(rows_of(asked.get("inputs"))))
        return {"model_name": self._name, "id": asked.get("id", ""), "outputs": outputs}


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


def metadata(predictor: Predictor) -> dict[str, Any]:
    """What clients of the open inference protocol ask first: the tensors of a request."""
    shapes: dict[str, list[int]] = {}
    for name in predictor.prompts or ("text",):
        if name.startswith("option "):
            name, shapes["options"] = "options", [-1, shapes.get("options", [0, 0])[1] + 1]
        shapes.setdefault(name, [-1])
    about = {"datatype": "BYTES"}
    inputs = [{"name": name, **about, "shape": shape} for name, shape in shapes.items()]
    return {"versions": ["1"], "platform": "albert_tf", "inputs": inputs, "outputs": []}


def rows_of(tensors: Any) -> list[dict[str, Any]]:
    """Items from tensors of the open inference protocol."""
    columns = dict(map(_column_of, tensors if isinstance(tensors, list) else [tensors]))
    if len(set(map(len, columns.values()))) != 1:
        raise UserError("expected tensors with equal first dimensions")
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _column_of(tensor: Any) -> tuple[str, list]:
    known = tensor if isinstance(tensor, Mapping) else {}
    name, shape, data = known.get("name"), known.get("shape"), known.get("data")
    if not isinstance(name, str) or not isinstance(shape, list) or not isinstance(data, list):
        raise UserError(f"expected a tensor with name, shape and data; got {shortened(tensor)}")
    array = np.array(data, object)
    is_shape = all(type(size) is int and 0 <= size <= array.size for size in shape)
    if not is_shape or not 0 < len(shape) <= 8 or math.prod(shape) != array.size:
        raise UserError(f"{shortened(name)}: the shape is not that of {array.size} values")
    return "text" if name == "texts" else name, array.reshape(shape).tolist()


def tensors_of(answers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A tensor [B, ...] for each key of answers; lists of anything but numbers are JSON texts."""
    tensors = []
    if any(answer.keys() != answers[0].keys() for answer in answers):
        raise UserError("the answers are of different kinds; send texts of one kind")
    for name in answers[0]:
        values = (answer[name] for answer in answers)
        rows = [list(row.values()) if isinstance(row, Mapping) else row for row in values]
        if not all(row and isinstance(row[0], float) for row in rows if isinstance(row, list)):
            rows = [json.dumps(row, ensure_ascii=False) for row in rows]
        array = np.array(rows)
        about = {"name": name, "datatype": _TYPES[array.dtype.kind], "shape": list(array.shape)}
        tensors.append({**about, "data": array.ravel().tolist()})
    return tensors
