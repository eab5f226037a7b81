r"""Serves an exported model with TensorFlow Serving's REST API; an example of a server.

    albert-tf serve served/mrpc 8501
    curl 127.0.0.1:8501/v1/models/mrpc:predict \
        -d '{"instances": [{"text_a": "It rains.", "text_b": "It is wet."}]}'

SIGTERM and Ctrl-C stop the server after it has answered the requests that it has read.
"""

import dataclasses
import queue
import signal

from albert_tf.core import flags
from albert_tf.core.settings import Settings, setting
from albert_tf.serving.settings import LimitSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeSettings(Settings):
    """The model and the address. The names of both flags can be omitted."""

    folder: str = setting(
        "", "Folder of an export, with its numbered versions.", required=True, input_path=True
    )
    port: int = setting(
        8501, "Port of this machine; 0 selects a free one.", minimum=0, maximum=2**16 - 1
    )


def main(limits: LimitSettings, settings: ServeSettings) -> None:
    """Serves until a signal arrives."""
    from albert_tf.serving.server import make_server  # TensorFlow

    # An Event would be locked if the signal arrives while it is waited for; this queue may be entered again.
    stop: queue.SimpleQueue[int] = queue.SimpleQueue()
    server = make_server(settings.folder, settings.port, limits)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: stop.put(number))
    print(f"http://127.0.0.1:{server.server_port}{server.urls[0]}", flush=True)
    server.serve_until(stop.get)


def run() -> None:
    """Runs the program."""
    flags.run(
        main, LimitSettings, ServeSettings, description=__doc__, positional=("folder", "port")
    )


if __name__ == "__main__":
    run()
