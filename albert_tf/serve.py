"""Serves a model over HTTP, with a page to try it in a browser.

    albert-tf serve runs/mrpc 8501

docs/serving.md describes the routes.
"""

import dataclasses
import importlib.util
import os
import socket
import sys
from typing import ClassVar

from albert_tf.core import flags
from albert_tf.core.errors import UserError
from albert_tf.core.settings import setting
from albert_tf.predict import WindowedSettings
from albert_tf.serving.settings import LimitSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeSettings(WindowedSettings):
    """The model and the address."""

    without_flags: ClassVar[tuple[str, ...]] = ("input_format",)

    host: str = setting("127.0.0.1", "Address to listen on; 0.0.0.0 is every one of this machine.")
    port: int = setting(8501, "Port; 0 selects a free one.", minimum=0, maximum=2**16 - 1)


def main(limits: LimitSettings, settings: ServeSettings) -> None:
    """Serves until SIGTERM or Ctrl-C, after which the requests that were read are answered."""
    for package in ("starlette", "uvicorn", "prometheus_client"):
        if not importlib.util.find_spec(package):
            raise UserError(f"needs the package {package}: pip install 'albert-tf[serve]'")
    path, host = settings.model, settings.host
    try:
        listening = socket.create_server((host, settings.port))
    except OSError as error:
        raise UserError(f"--port={settings.port} of {host}: {error.strerror}") from None
    import uvicorn

    from albert_tf.serving.server import Routes

    versions = filter(str.isdigit, os.listdir(path) if os.path.isdir(path) else ())
    path = os.path.join(path, *sorted(versions, key=int)[-1:])  # an export has versions
    print(f"loading {settings.model}", file=sys.stderr, flush=True)
    predictor = dataclasses.replace(settings, model=path).load_predictor()
    routes = Routes(predictor, os.path.basename(os.path.abspath(settings.model)), limits)
    config = uvicorn.Config(routes.app, log_level="warning")
    config.limit_concurrency = limits.max_connections
    print(f"http://{host}:{listening.getsockname()[1]}/", flush=True)
    uvicorn.Server(config).run(sockets=[listening])


run = flags.program(
    main, LimitSettings, ServeSettings, description=__doc__, positional=("model", "port")
)

if __name__ == "__main__":
    run()
