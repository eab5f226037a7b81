"""Measures the page that works offline: its size, the time to its first answer, texts per second, and exactness.

    npm pack onnxruntime-web@1.30.0
    python -m lab.web_page --output_file=docs/results/data/web_page.json

Chromium opens the page of models/albert-minilm-l6 in every quantization from a file, without a network. Each time is
the minimum of several; processor time, which other programs on the machine change less, is that of the page's main
thread.
"""

import argparse
import datetime
import functools
import json
import os
import statistics
import tempfile
from typing import Any

import numpy as np

from albert_tf import load_predictor
from albert_tf.core import files
from albert_tf.export import ExportSettings, export_model
from albert_tf.export import main as export
from albert_tf.serving.page import engine
from albert_tf.text.tokenizer import Tokenizer
from lab.browser import Browser, browser
from lab.many_scripts import made_up_texts

_MODEL = "models/albert-minilm-l6"
_TOKENIZED = {_MODEL: 2000, "models/albert-tiny-docs": 2000}  # model -> number of texts
_OPENED = 5  # times
_NUM_SHORT = 200  # texts whose time is measured
_NOUNS = ("weather", "parcel", "camera", "invoice", "train", "garden", "recipe", "contract")
_VERBS = ("arrived late in", "was sent to", "is cheaper in", "looks different in", "comes from")
_PLACES = ("Oslo", "Lima", "the north", "our office", "the old town", "Kyoto", "Nairobi")
_SHOWN = "document.querySelector('#answer')?.innerText"


def short_texts() -> list[str]:
    """Sentences of about nine words."""
    return [
        f"The {_NOUNS[i % 8]} {_VERBS[i % 5]} {_PLACES[i % 7]}, number {i}, this week."
        for i in range(_NUM_SHORT)
    ]


def _opened(page: Browser, path: str) -> dict[str, float]:
    """Opens a page; the seconds until it shows its first answer."""
    page.send("Page.navigate", url="about:blank")
    before = _thread_seconds(page)
    page.send("Page.navigate", url=f"file://{os.path.abspath(path)}")
    page.wait_for(_SHOWN)
    wall = page.value("performance.getEntriesByName('answer')[0].startTime") / 1000
    after = _thread_seconds(page)
    return {"first_answer": wall, "first_answer_processor": after - min(before, after)}


def _thread_seconds(page: Browser) -> float:
    """Processor seconds of the page's main thread so far."""
    metrics = page.send("Performance.getMetrics")["metrics"]
    return next(entry["value"] for entry in metrics if entry["name"] == "ThreadTime")


def _embedded(page: Browser, texts: list[str]) -> tuple[np.ndarray, float, float]:
    """The vectors of texts that are embedded together, the seconds, and the processor seconds."""
    before = _thread_seconds(page)
    program = f"""(async () => {{
      const start = performance.now();
      const vectors = await backend.embed({json.dumps(texts)}, () => {{}});
      return {{ vectors, seconds: (performance.now() - start) / 1000 }};
    }})()"""
    result = page.value(program)
    return np.array(result["vectors"]), result["seconds"], _thread_seconds(page) - before


def cosines_of(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
    """The minimum and the median of the cosines of rows [n, D] with others."""
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cosines = (a * b).sum(axis=1) / norms
    return {
        "minimum": round(float(cosines.min()), 6),
        "median": round(float(np.median(cosines)), 6),
    }


def measure(page: Browser, quantization: str, folder: str, web_engine: str) -> dict[str, Any]:
    """The measurements of the page with weights of one form."""
    path = os.path.join(folder, f"{quantization}.html")
    settings = {"format": "web", "quantization": quantization, "web_engine": web_engine}
    export(ExportSettings(model=_MODEL, output_file=path, **settings))
    onnx = os.path.join(folder, quantization)
    export_model(_MODEL, onnx, format="onnx", quantization=quantization)
    texts = short_texts()
    # One by one, because a vector of int8 depends on the others of its batch.
    predictor = load_predictor(onnx)
    of_runtime = np.stack([predictor.embed(text) for text in texts])
    exact = load_predictor(_MODEL).embed(texts)

    times = [_opened(page, path) for _ in range(_OPENED)]
    alone = np.concatenate([_embedded(page, [text])[0] for text in texts])
    runs = [_embedded(page, texts) for _ in range(_OPENED)]
    return {
        "quantization": quantization,
        "page_megabytes": round(os.path.getsize(path) / 1e6, 2),
        "model_megabytes": round(os.path.getsize(os.path.join(onnx, "model.onnx")) / 1e6, 2),
        **{f"{name}_seconds": round(min(time[name] for time in times), 2) for name in times[0]},
        "texts_per_second": round(len(texts) / min(seconds for _, seconds, _ in runs), 1),
        "texts_per_processor_second": round(len(texts) / min(seconds for *_, seconds in runs), 1),
        "cosine_with_onnx_runtime": cosines_of(alone, of_runtime),
        "cosine_with_float32": cosines_of(alone, exact),
    }


def equal_tokens(page: Browser, model: str, number: int, folder: str, web_engine: str) -> dict:
    """The number of texts whose ids and offsets in the browser are those in Python."""
    path = os.path.join(folder, "tokens.html")
    settings = {"format": "web", "web_engine": web_engine, "overwrite": True}
    export(ExportSettings(model=model, output_file=path, quantization="int8", **settings))
    _opened(page, path)
    tokenizer = Tokenizer.from_pretrained(model)
    texts = made_up_texts(number)
    program = "texts => texts.map(text => predictor.tokenizer.encodeWithOffsets(text))"
    rows = page.value(f"({program})({json.dumps(texts)})")
    num_equal = 0
    for text, row in zip(texts, rows, strict=True):
        ids, spans = tokenizer.encode_with_offsets(text)
        num_equal += row["ids"] == list(ids) and row["spans"] == [list(span) for span in spans]
    return {"model": model, "texts": number, "equal": num_equal}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output_file", required=True)
    parser.add_argument("--web_engine", default="")
    parser.add_argument("--quantizations", default="none,int8,int4")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, browser(os.path.join(folder, "profile")) as page:
        page.send("Network.enable")
        none = {"latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        page.send("Network.emulateNetworkConditions", offline=True, **none)
        page.send("Performance.enable", timeDomain="threadTicks")
        make = functools.partial(measure, page, folder=folder, web_engine=arguments.web_engine)
        result = {
            "date": datetime.date.today().isoformat(),
            "browser": page.send("Browser.getVersion")["product"],
            "engine": f"{engine.NAME} {engine.VERSION}",
            "model": _MODEL,
            "texts": f"{_NUM_SHORT} of {statistics.mean(len(t.split()) for t in short_texts()):.0f} words",
            "load_average_at_start": round(os.getloadavg()[0], 1),
            "forms": [make(name) for name in arguments.quantizations.split(",")],
            "tokens": [
                equal_tokens(page, model, number, folder, arguments.web_engine)
                for model, number in _TOKENIZED.items()
            ],
        }
    files.write_bytes(arguments.output_file, files.json_bytes(result))
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
