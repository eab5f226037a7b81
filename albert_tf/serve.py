r"""Serves an exported model with TensorFlow Serving's REST API; an example of a server.

    albert-tf serve served/mrpc 8501
    curl 127.0.0.1:8501/v1/models/mrpc:predict \
        -d '{"instances": [{"text_a": "It rains.", "text_b": "It is wet."}]}'

SIGTERM and Ctrl-C stop the server after it has answered the requests that it has read.
"""

import dataclasses
import os
import queue
import signal
import tempfile

from albert_tf.core import flags
from albert_tf.core.errors import UserError
from albert_tf.core.settings import setting
from albert_tf.serving.settings import EarlyExitSettings, LimitSettings
from albert_tf.tasks.settings import depth_setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeSettings(EarlyExitSettings):
    """The model and the address, whose flags' names can be omitted, and how deep the model is."""

    folder: str = setting(
        "", "Folder of an export, with its numbered versions.", required=True, input_path=True
    )
    port: int = setting(
        8501, "Port of this machine; 0 selects a free one.", minimum=0, maximum=2**16 - 1
    )
    num_hidden_layers: int | None = depth_setting()


def main(limits: LimitSettings, settings: ServeSettings) -> None:
    """Serves until a signal arrives."""
    from albert_tf.serving.server import make_server  # TensorFlow

    # An Event would be locked if the signal arrives while it is waited for; this queue may be entered again.
    stop: queue.SimpleQueue[int] = queue.SimpleQueue()
    with tempfile.TemporaryDirectory() as parent:
        folder = settings.folder
        if settings.num_hidden_layers or settings.patience:
            folder = export_again(settings, parent)
        server = make_server(folder, settings.port, limits)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: stop.put(number))
        print(f"http://127.0.0.1:{server.server_port}{server.urls[0]}", flush=True)
        server.serve_until(stop.get)


def export_again(settings: ServeSettings, parent: str) -> str:
    """Exports the newest version once more, with the depth of the settings; returns the folder of the export."""
    from albert_tf.export import export_model
    from albert_tf.formats.description import describe
    from albert_tf.serving import onnx_model
    from albert_tf.serving.server import newest_version

    if onnx_model.is_export(settings.folder):
        raise UserError(f"{settings.folder}: {onnx_model.FIXED_DEPTH}")
    version = newest_version(settings.folder)
    folder = os.path.join(parent, os.path.basename(os.path.abspath(settings.folder)))
    names = ("dtype", "patience", "score_tolerance")
    exported = {name: value for name, value in describe(version).exported.items() if name in names}
    options = {**exported, "num_hidden_layers": settings.num_hidden_layers}
    if settings.patience:
        options |= {"patience": settings.patience, "score_tolerance": settings.score_tolerance}
    export_model(version, folder, version=int(os.path.basename(version)), **options)
    return folder


def run() -> None:
    """Runs the program."""
    flags.run(
        main, LimitSettings, ServeSettings, description=__doc__, positional=("folder", "port")
    )


if __name__ == "__main__":
    run()
