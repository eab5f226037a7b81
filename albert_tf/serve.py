"""Serves a model over HTTP, with a page to try it in a browser.

    albert-tf serve runs/mrpc 8501

docs/guides/serving.md describes the routes.
"""

import dataclasses
import importlib.util
import os
import socket
import sys
from typing import ClassVar

from albert_tf import functions
from albert_tf.core import flags
from albert_tf.core.callable_modules import make_callable
from albert_tf.core.errors import UserError
from albert_tf.core.program import Program
from albert_tf.core.settings import setting
from albert_tf.predict import WindowedSettings
from albert_tf.serving.settings import LimitSettings

# In the folder of any model that is not a TF1 checkpoint.
_FILES_OF_MODELS = ("config.json", "albert_config.json", "saved_model.pb", "model.onnx")


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
    path = settings.model
    host = settings.host
    try:
        listening = socket.create_server((host, settings.port))
    except OSError as error:
        raise UserError(f"--port={settings.port} of {host}: {error.strerror}") from None
    from albert_tf.serving import web
    from albert_tf.serving.server import Routes

    print(f"loading {settings.model}", file=sys.stderr, flush=True)
    folder = version_of(path)
    predictor = dataclasses.replace(settings, model=folder).load_predictor()
    predictor.warm_up()  # so that the server is ready when it says so
    name = os.path.basename(os.path.abspath(path))
    version = "1" if folder == path else os.path.basename(folder)
    routes = Routes(predictor, name, limits, source=path, version=version)
    server = web.server(routes.app, limits, host)
    print(f"http://{host}:{listening.getsockname()[1]}/", flush=True)
    server.run(sockets=[listening])


def version_of(path: str) -> str:
    """The folder of the highest version in a folder of versions, as exports are; of any other model its path.

    A version is a folder whose name has only the digits 0 to 9. A folder with files of a model is that model.
    """
    if not os.path.isdir(path) or any(
        os.path.exists(f"{path}/{name}") for name in _FILES_OF_MODELS
    ):
        return path
    names = [name for name in os.listdir(path) if name.isascii() and name.isdigit()]
    versions = [name for name in names if os.path.isdir(os.path.join(path, name))]
    return os.path.join(path, max(versions, key=int)) if versions else path


program = Program(
    main=main,
    settings_classes=(LimitSettings, ServeSettings),
    description=__doc__,
    positional=("model", "port"),
)
run = flags.in_shell(program)
make_callable(__name__, lambda: functions.function_of("serve"))

if __name__ == "__main__":
    run()
