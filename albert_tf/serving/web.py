"""What the server does with any request before and after its routes: hosts, origins, connections, forms of errors."""

import asyncio
import fnmatch
import functools
import ipaddress
import json
import socket
from collections.abc import Collection
from typing import Any

import h11
import uvicorn
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from albert_tf.serving.settings import LimitSettings

# What `curl -d` and Python's urllib send if nobody says otherwise; an HTML form sends it, too.
_FORM = "application/x-www-form-urlencoded"
# Browsers send at least one of them with every request of a page to another origin.
_FROM_A_PAGE = ("origin", "referer", "sec-fetch-site")
_SECONDS_UNTIL_RETRY = 1  # a usual answer takes less


class ApiError(HTTPException):
    """A request that is rejected, with what OpenAI's clients read: the parameter, and a code."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str = ""):
        super().__init__(status, message)
        self.param = param
        self.code = code or None


def error_response(path: str, status: int, message: str, error: Any = None) -> JSONResponse:
    """An error as JSON: `{"error": message}`, and on routes of OpenAI's API an object in the place of the message.

    With status 503, `Retry-After` says when the client may try again; headers of the error, such as `Allow`, are kept.
    """
    content: Any = message
    if _is_of_openai(path):
        kind = "invalid_request_error" if status < 500 else "server_error"
        param = getattr(error, "param", None)
        code = getattr(error, "code", None)
        content = {"message": message, "type": kind, "param": param, "code": code}
    headers = dict(getattr(error, "headers", None) or {})
    if status == 503:
        headers["Retry-After"] = str(_SECONDS_UNTIL_RETRY)
    return JSONResponse({"error": content}, status, headers)


def _is_of_openai(path: str) -> bool:
    is_of_tensorflow_serving = ":" in path  # /v1/models/NAME:predict
    return path == "/rerank" or (path.startswith("/v1/") and not is_of_tensorflow_serving)


def check_is_json(headers: Headers) -> None:
    """Rejects what a page of another origin can send without asking: a form, or text of no type."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json")):
        return
    is_from_a_page = any(name in headers for name in _FROM_A_PAGE)
    if is_from_a_page or kind not in ("", _FORM):
        got = kind or "none"
        raise ApiError(415, f"expected the header Content-Type: application/json; got {got}")


class Hosts:
    """Rejects requests to a host name that is not this server's, as a page can send them through its own DNS."""

    def __init__(self, app: ASGIApp, names: Collection[str]):
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        host = host_of(Headers(scope=scope).get("host", ""))
        if host and not self._is_allowed(host):
            reason = f"the host name {host[:60]!r} is not allowed here"
            message = f"{reason}; the server's flag --allowed_hosts can name it"
            await error_response(scope["path"], 400, message)(scope, receive, send)
            return
        await _until_the_end(self._app, scope, receive, send)

    def _is_allowed(self, host: str) -> bool:
        # The name of an attacker's site leads here only through DNS, so an address cannot be one.
        return _is_address(host) or any(fnmatch.fnmatchcase(host, name) for name in self._names)


def host_of(header: str) -> str:
    """The host in the value of a Host header, in small letters: "[::1]:8501" -> "::1"; "Localhost." -> "localhost"."""
    header = header.strip().lower()
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].rstrip(".")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def _until_the_end(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Calls an application; if the server ends before it has answered, the answer is 503."""
    has_started = False

    async def noted(message: Message) -> None:
        nonlocal has_started
        has_started = True
        await send(message)

    try:
        await app(scope, receive, noted)
    except asyncio.CancelledError:
        if not has_started:
            response = error_response(scope["path"], 503, "the server ends; try again later")
            await response(scope, receive, send)


class _Origins(CORSMiddleware):
    """Lets pages of some origins read the answers; a refusal is JSON."""

    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        if response.status_code < 400:
            return response
        message = bytes(response.body).decode()
        headers = {name: value for name, value in response.headers.items() if name == "vary"}
        return JSONResponse({"error": message}, response.status_code, headers)


class _Protocol(H11Protocol):
    """HTTP/1.1 with a limit of connections; errors outside of the application are JSON, too."""

    def __init__(self, most_connections: int, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._most_connections = most_connections

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self._most_connections:  # this one is among them
            self.app = _too_many_connections

    def send_400_response(self, msg: str) -> None:
        body = json.dumps({"error": msg}).encode()
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        events = [
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ]
        for event in events:
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


async def _too_many_connections(scope: Any, receive: Any, send: Any) -> None:
    message = "the server has too many connections; try again later"
    response = error_response(scope["path"], 503, message)
    response.headers["connection"] = "close"
    await response(scope, receive, send)


def server(app: ASGIApp, limits: LimitSettings, host: str = "127.0.0.1") -> uvicorn.Server:
    """A server of an application, with the limits and checks of this module; `host` is where it listens."""
    origins = limits.listed("cors_origin")
    if origins:
        app = _Origins(app, origins, allow_methods=["GET", "POST"], allow_headers=["*"])
    names = {*limits.listed("allowed_hosts"), host, "localhost", socket.gethostname()}
    app = Hosts(app, {name.lower() for name in names})
    config = uvicorn.Config(
        app,
        log_level="warning",
        http=functools.partial(_Protocol, limits.max_connections),  # type: ignore[arg-type]
        timeout_graceful_shutdown=limits.shutdown_seconds,
    )
    return uvicorn.Server(config)
