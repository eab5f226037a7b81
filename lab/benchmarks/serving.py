r"""Measures how fast an exported model answers over HTTP: latency and throughput by batch size.

    python -m lab.benchmarks.serving --model_dir=served/mrpc --input_file=texts.txt \
        --output_file=serving.md

The result is a Markdown table. The program starts albert_tf.serve on a free port of this machine, sends requests for
a limited time, and stops it. With --url it uses a running server instead, such as TensorFlow Serving.
"""

import concurrent.futures
import contextlib
import dataclasses
import http.client
import json
import os
import platform
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator

import numpy as np

from albert_tf.core import files, flags
from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings, setting
from albert_tf.core.tables import table


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServingSettings(Settings):
    """Which requests are sent, and for how long."""

    model_dir: str = setting(
        "", "Folder of an exported classifier, with its versions.", input_path=True
    )
    url: str = setting("", "A running server instead, as http://127.0.0.1:8501/v1/models/mrpc.")
    input_file: str = setting(
        "",
        "Texts, one per line; a tab separates the two texts of a pair.",
        required=True,
        input_path=True,
    )
    output_file: str = setting("", "Markdown file to write the table to, besides printing it.")
    batch_sizes: str = setting("1,8,32", "Numbers of texts in a request, separated by commas.")
    clients: int = setting(1, "Number of concurrent requests.", minimum=1, maximum=64)
    seconds: float = setting(10.0, "Seconds for each batch size.", minimum=0.1, maximum=600)

    def __post_init__(self):
        super().__post_init__()
        if bool(self.model_dir) == bool(self.url):
            self.refuse("model_dir", "or --url must be given, and not both")
        if not all(size.isdecimal() and int(size) for size in self.batch_sizes.split(",")):
            self.refuse("batch_sizes", f"must be numbers above 0, got {self.batch_sizes!r}")

    @property
    def sizes(self) -> list[int]:
        """The batch sizes."""
        return [int(size) for size in self.batch_sizes.split(",")]


def main(settings: ServingSettings) -> None:
    """Measures every batch size and prints the table."""
    lines = files.read_bytes(settings.input_file).decode().splitlines()
    rows = [line.partition("\t") for line in lines if line.strip()]
    if not rows:
        raise UserError(f"{settings.input_file}: holds no text")
    instances = [{"text_a": text_a, "text_b": text_b} for text_a, _, text_b in rows]
    table_rows = []
    with server(settings) as url:
        for batch_size in settings.sizes:
            seconds, elapsed = measure(url, instances, batch_size, settings)
            p50, p95 = 1000 * np.percentile(seconds, [50, 95])
            rate = len(seconds) * batch_size / elapsed
            numbers = (f"{value:.1f}" for value in (rate, p50, p95))
            table_rows.append((batch_size, len(seconds), *numbers))
    lines = table("batch | requests | texts a second | p50, ms | p95, ms", table_rows)
    about = f"{platform.machine()}, {os.cpu_count()} processors, {settings.clients} client(s)"
    text = "\n".join([f"{about}, {settings.seconds:g} s each", "", *lines, ""])
    print(text, end="")
    if settings.output_file:
        files.write_bytes(settings.output_file, text.encode())


def measure(
    url: str, instances: list[dict], batch_size: int, settings: ServingSettings
) -> tuple[list[float], float]:
    """Seconds of each request and of the whole measurement, without the first request of each client."""

    def send_requests(client: int) -> list[float]:
        parts = urllib.parse.urlsplit(url)
        connection = http.client.HTTPConnection(parts.netloc)
        times: list[float] = []
        end = None
        position = client * batch_size
        while end is None or time.monotonic() < end:
            indices = range(position, position + batch_size)
            batch = [instances[index % len(instances)] for index in indices]
            begin = time.monotonic()
            _predict(connection, parts.path, batch)
            if end is None:
                end = time.monotonic() + settings.seconds
            else:
                times.append(time.monotonic() - begin)
            position += settings.clients * batch_size
        return times

    with concurrent.futures.ThreadPoolExecutor(settings.clients) as pool:
        times_of_clients = list(pool.map(send_requests, range(settings.clients)))
    elapsed = max(map(sum, times_of_clients))
    return [seconds for times in times_of_clients for seconds in times], elapsed


def _predict(connection: http.client.HTTPConnection, path: str, batch: list[dict]) -> None:
    connection.request("POST", f"{path}:predict", json.dumps({"instances": batch}))
    response = connection.getresponse()
    content = response.read()
    if response.status != 200:
        raise UserError(f"the server answers {response.status}: {content[:300].decode()}")


@contextlib.contextmanager
def server(settings: ServingSettings) -> Iterator[str]:
    """The URL of the model: --url, or that of a server that runs during the block."""
    if settings.url:
        yield settings.url
        return
    command = [sys.executable, "-m", "albert_tf.serve", settings.model_dir, "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}  # it logs every request
    with subprocess.Popen(command, text=True, **pipes) as process:
        try:
            url = process.stdout.readline().strip()
            if not url:
                raise UserError(f"--model_dir={settings.model_dir}: the server did not start")
            name = os.path.basename(os.path.abspath(settings.model_dir))
            yield f"{url}v1/models/{name}"
        finally:
            process.terminate()


if __name__ == "__main__":
    flags.run(main, ServingSettings, description=__doc__)
