"""An HTTP server for a predictor: a page to try the model, and the routes of other servers.

`page.html` shows answers to a person. /v1/models/NAME:predict takes rows as TensorFlow Serving does and answers as
`Predictor.predict` does; /v2/models/NAME/infer is that of KServe and Triton, /v1/embeddings that of OpenAI's API.
"""

import asyncio
import base64
import functools
import importlib.resources
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
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
from albert_tf.serving.settings import LimitSettings
from albert_tf.tasks.embedding.predictor import Embedder, checked_texts
from albert_tf.tasks.predictor import Predictor
from albert_tf.text.tokenizer import check_words

_LONGEST_WORD = 10_000  # characters without white space between them
_TYPES = {"b": "BOOL", "i": "INT64", "f": "FP64", "U": "BYTES"}  # NumPy's kind -> the protocol's


class Batches:
    """Answers requests together; each is a function, examples for it, and a future of the result."""

    def __init__(self, most_examples: int, limits: LimitSettings, computed: Any):
        self._most_examples, self._limits, self._computed = most_examples, limits, computed
        self._queue: asyncio.Queue[tuple] = asyncio.Queue(limits.max_waiting)
        self._task: asyncio.Task | None = None

    async def answers(self, function: Callable, examples: Sequence) -> list:
        """What a function of examples returns for these; it may get those of other requests, too."""
        self._task = self._task or asyncio.create_task(self._run())
        result = asyncio.get_running_loop().create_future()
        try:
            self._queue.put_nowait((function, examples, result))
            async with asyncio.timeout(self._limits.answer_seconds):
                return await result
        except (asyncio.QueueFull, TimeoutError):
            raise HTTPException(503, "the server is busy; try again later") from None

    async def _run(self) -> None:
        left: tuple = ()
        while True:
            function, *request = left or await self._queue.get()
            batch, left, room = [request], (), self._most_examples - len(request[0])
            await asyncio.sleep(self._limits.batch_wait_ms / 1000)
            while not left and not self._queue.empty():
                other, *request = self._queue.get_nowait()
                room -= len(request[0])
                if room >= 0 and other == function:
                    batch.append(request)
                else:
                    left = (other, *request)
            await self._answer(function, [request for request in batch if not request[1].done()])

    async def _answer(self, function: Callable, batch: list) -> None:
        self._computed.inc()
        every = [example for examples, _ in batch for example in examples]
        try:
            answers = iter(await asyncio.to_thread(function, every) if every else ())
        except Exception as error:
            for request in batch if len(batch) > 1 else ():  # one of them causes the error
                await self._answer(function, [request])
            if len(batch) == 1 and not batch[0][1].done():
                batch[0][1].set_exception(error)
            return
        for examples, result in batch:
            rows = list(itertools.islice(answers, len(examples)))
            if not result.done():
                result.set_result(rows)


class Routes:
    """The answers to requests; `app` is the server as an ASGI application."""

    def __init__(self, predictor: Predictor, name: str, limits: LimitSettings):
        self._predictor, self._name, self._limits = predictor, name, limits
        metrics: dict[str, Any] = {"registry": prometheus.CollectorRegistry()}
        self._seconds = prometheus.Histogram("albert_tf_request_seconds", "Time", **metrics)
        self._errors = prometheus.Counter("albert_tf_errors", "Errors", ["status"], **metrics)
        computed = prometheus.Counter("albert_tf_batches", "Batches", **metrics)
        self._batches = Batches(predictor.batch_size, limits, computed)
        state = {"name": name, "ready": True, "model_version_status": [{"state": "AVAILABLE"}]}
        states = [f"/v1/models/{name}", f"/v2/models/{name}/ready"]
        states += ["/v2/health/ready", "/v2/health/live"]
        gets: dict[str, Callable] = {"/": self._page}
        gets[f"/v2/models/{name}"] = lambda _: JSONResponse({"name": name, **metadata(predictor)})
        gets |= dict.fromkeys(states, lambda _: JSONResponse(state))
        gets["/metrics"] = lambda _: PlainTextResponse(prometheus.generate_latest(**metrics))
        posts = {f"/v1/models/{name}:predict": self._predict, "/v1/embeddings": self._embed}
        posts[f"/v2/models/{name}/infer"] = self._infer
        routes = [Route(*get) for get in gets.items()]
        for path, answer in posts.items():
            routes.append(Route(path, functools.partial(self._post, answer), methods=["POST"]))
        errors = dict.fromkeys((UserError, HTTPException, ClientDisconnect, Exception), self._error)
        self.app = Starlette(routes=routes, exception_handlers=errors)

    async def _post(self, answer: Callable, request: Request) -> Response:
        with self._seconds.time():
            return JSONResponse(await answer(await self._read(request)))

    async def _read(self, request: Request) -> dict[str, Any]:
        content, most = bytearray(), self._limits.max_request_bytes
        async for part in request.stream():
            content += part
            if len(content) > most:
                raise HTTPException(413, f"expected at most {most:,} bytes")
        asked = files.parse_json(bytes(content), "request")
        values: list[Any] = [asked]
        while values:
            match values.pop():
                case str() as text:
                    check_words(text, _LONGEST_WORD)
                case dict() | list() as several:
                    values += several.values() if isinstance(several, dict) else several
        return asked

    async def _error(self, _request: Request, error: Any) -> Response:
        is_known = isinstance(error, UserError | ClientDisconnect)
        status = getattr(error, "status_code", 400 if is_known else 500)
        message = getattr(error, "detail", str(error) if is_known else type(error).__name__)
        message += f"; the model here is {self._name}" if status == 404 else ""
        self._errors.labels(status).inc()
        return JSONResponse({"error": message}, status)

    async def _page(self, _request: Request) -> Response:
        model = {name: getattr(self._predictor, name) for name in ("prompts", "expects")}
        model |= {"name": self._name, "kind": type(self._predictor).__name__}
        page = importlib.resources.files(__package__).joinpath("page.html").read_text("utf-8")
        return HTMLResponse(page.replace("__MODEL__", json.dumps(model).replace("<", "\\u003c")))

    async def _answers(self, items: Any, of_vectors: bool = False) -> list:
        most, model = self._limits.max_instances, self._predictor
        if not isinstance(items, list) or not 0 < len(items) <= most:
            status = 413 if isinstance(items, list) and items else 400
            raise HTTPException(status, f"expected a list of 1 to {most} texts")
        if isinstance(model, Embedder) and of_vectors:
            return await self._batches.answers(model.embed, checked_texts(items))
        return await self._batches.answers(model.answered, list(map(model.check, items)))

    async def _predict(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked.keys() - {"signature_name"} != {"instances"}:  # that of TF Serving's clients
            raise UserError(f'expected "instances", a list; got {shortened(list(asked))}')
        return {"predictions": await self._answers(asked["instances"])}

    async def _infer(self, asked: dict[str, Any]) -> dict[str, Any]:
        outputs = tensors_of(await self._answers(rows_of(asked.get("inputs"))))
        return {"model_name": self._name, "id": asked.get("id", ""), "outputs": outputs}

    async def _embed(self, asked: dict[str, Any]) -> dict[str, Any]:
        texts, kind = asked.get("input"), asked.get("encoding_format", "float")
        if not isinstance(self._predictor, Embedder) or kind not in ("float", "base64"):
            raise UserError("expected a model that embeds, and encoding_format float or base64")
        if asked.get("model") not in (None, self._name):
            raise HTTPException(404, f"model: the only one here is {self._name}")
        vectors = await self._answers([texts] if isinstance(texts, str) else texts, True)
        if asked.get("dimensions") not in (None, len(vectors[0])):
            raise UserError(f"dimensions: the vectors of this model have {len(vectors[0])} numbers")
        rows = [row.tolist() for row in vectors]
        if kind == "base64":
            rows = [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in vectors]
        data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]
        return {"object": "list", "data": data, "model": self._name}


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
