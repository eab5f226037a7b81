r"""Compares engines and forms of an embedder side by side: texts per second, cosines with float32, STS-B, megabytes.

    python -m lab.inference models/albert-minilm-l6 --data_dir=data

"Ours" are the exports of this project. The others are what somebody would do with the same model: its file in float32
in ONNX Runtime and OpenVINO, and the quantization of both (`quantize_dynamic`, and static quantization by NNCF). All
compute the same batches: of 32 texts of similar length, those that the predictors here make (at most 1,024 tokens), and
one text at a time. The statistics of NNCF and `int8_calibrated` are taken from the texts whose time is measured;
cosines and STS-B are those of other texts. All take turns in one process, one thread each; tokens are left out. Engines
that are not installed are skipped.

It also measures one text of 16 tokens in a model of random weights with one shared layer, and with layers of their own.
The output file gets an entry for each model and each set of instructions, and the page its tables and the picture.
`python -m lab.hidden_instructions avx512,avx_vnni python -m lab.inference ...` measures what a processor without these
instructions would do.
"""

import dataclasses
import datetime
import importlib.metadata
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.core import flags
from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings, setting
from albert_tf.formats import layouts
from albert_tf.formats.weights import Weights, encoder_shapes, report_of
from albert_tf.model.config import AlbertConfig
from albert_tf.model.head_names import PRETRAINING
from albert_tf.serving import calibration, graph_engines, onnx_files
from albert_tf.serving.graph_engines import OnnxRuntime, OpenVino, Run
from albert_tf.serving.onnx_model import MODEL, inputs_of
from albert_tf.serving.tuning import CALIBRATED
from albert_tf.tune import TuneSettings
from lab import hidden_instructions, machine, real_weights, report, tables
from lab.small_forms import batches_of, texts_for_times

Batches = list[dict[str, np.ndarray]]

OURS = {
    "float32, ONNX Runtime": ("none", OnnxRuntime()),
    "int8, ONNX Runtime": ("int8", OnnxRuntime()),
    "int8_rows, ONNX Runtime": ("int8_rows", OnnxRuntime()),
    "int8_calibrated, OpenVINO": (CALIBRATED, OpenVino("float32", 128)),
    "int8_weights, OpenVINO": ("int8_weights", OpenVino("float32", 128)),
    "int8_weights, OpenVINO, bfloat16": ("int8_weights", OpenVino("bfloat16", 128)),
}
SPEED = "texts_per_processor_second"
SPEED_IN_OUR_BATCHES = "texts_per_processor_second_in_our_batches"
ONE_TEXT = "milliseconds_of_one_text"
LEAST_LOST = 1e-5  # in the picture, of forms in float32
_COLUMNS = (
    "way | texts/s | relative | in our batches | one text, ms | median cosine | least | STS-B | MB"
)
OF_A_USER = 32  # texts of a batch of others
LATENCY_TOKENS = 16
LATENCY_CALLS = 200
NUM_CALIBRATED = 96


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineSettings(Settings):
    """The model, the data and how often each pass is repeated."""

    model: str = setting("", "An embedder.", required=True, input_path=True)
    data_dir: str = setting("", "Folder with glue and text.", required=True, input_path=True)
    repetitions: int = setting(5, "Passes over the texts.", minimum=1)
    output_file: str = setting("docs/results/data/engines.json", "JSON file of the results.")
    page: str = setting(
        "docs/guides/speed.md", "Page that gets the tables and the picture; empty for none."
    )


@dataclasses.dataclass(eq=False)
class Way:
    """A way to compute the model."""

    run: Run
    megabytes: float
    is_ours: bool
    # Seconds of each pass over the usual batches, and over those of our predictors; of each call with one text.
    usual: list[float] = dataclasses.field(default_factory=list)
    in_our_batches: list[float] = dataclasses.field(default_factory=list)
    one_text: list[float] = dataclasses.field(default_factory=list)


def main(settings: EngineSettings) -> None:
    """Measures, prints a line for each way, and writes the results and the plot."""
    from albert_tf import load_predictor

    predictor = load_predictor(settings.model, engine="onnxruntime")
    weights = layouts.read_weights(settings.model)
    data = real_weights.read_data(settings.data_dir)["test"]
    texts = texts_for_times(settings.data_dir)
    most = predictor.task_settings["max_seq_length"]
    usual = batches_of(predictor.tokenizer, texts, most)
    ours = batches_of(
        predictor.tokenizer, texts, most, most_tokens=predictor.compute.tokens_of_batch
    )
    one_text = {name: array[-1:, :LATENCY_TOKENS] for name, array in usual[-1].items()}
    with tempfile.TemporaryDirectory() as folder:
        ways = ways_to_compute(weights, usual, pathlib.Path(folder))
        for _ in range(settings.repetitions):
            for way in ways.values():
                way.usual.append(processor_seconds(way.run, usual))
                way.in_our_batches.append(processor_seconds(way.run, ours))
        for _ in range(LATENCY_CALLS):
            for way in ways.values():
                way.one_text.append(seconds_of_one_text(way.run, one_text))
        pairs = batches_of(predictor.tokenizer, [*data[0], *data[1]], most)
        rows = {}
        expected: np.ndarray | None = None
        for name, way in ways.items():
            vectors = np.concatenate([vectors_of(way.run, batch) for batch in pairs])
            expected = vectors if expected is None else expected
            cosines = (vectors * expected).sum(axis=1)
            rows[name] = {
                "is_ours": way.is_ours,
                SPEED: per_second(texts, way.usual),
                SPEED_IN_OUR_BATCHES: per_second(texts, way.in_our_batches),
                ONE_TEXT: round(1e3 * float(np.median(way.one_text)), 2),
                "seconds": [round(seconds, 3) for seconds in way.usual],
                "median_cosine": round(float(np.median(cosines)), 5),
                "least_cosine": round(float(cosines.min()), 5),
                "sts_b_spearman": sts_b(vectors, predictor.tokenizer, data, most),
                "megabytes": round(way.megabytes, 2),
            }
            print(name, rows[name], flush=True)
    result = {
        "model": pathlib.Path(settings.model).name,
        "processor": machine.processor_name(),
        "instructions": hidden_instructions.instructions(),
        "hidden": [*hidden_instructions.hidden()],
        "date": f"{datetime.date.today()}",
        "commit": machine.commit(".", short=True),
        "versions": versions(),
        "texts": len(texts),
        "ways": rows,
        "one_text_of_16_tokens": latency(),
    }
    runs = hidden_instructions.with_run(settings.output_file, result)
    if settings.page:
        plot(runs, pathlib.Path(settings.page).parent.parent / "pictures" / "engines.png")
        report.replace_parts(settings.page, {"engines": page_lines(runs)})


def processor_seconds(run: Run, batches: Batches) -> float:
    """Of one pass over batches."""
    run(inputs_of(batches[0]))  # fills the caches
    started = time.process_time()
    for batch in batches:
        run(inputs_of(batch))
    return time.process_time() - started


def per_second(texts: Sequence[str], seconds: Sequence[float]) -> float:
    """Texts per second of the median pass."""
    return round(len(texts) / float(np.median(seconds)), 1)


def seconds_of_one_text(run: Run, text: dict[str, np.ndarray]) -> float:
    """Of a call with one text, after another, as a process that serves one model has it in its caches."""
    inputs = inputs_of(text)
    run(inputs)
    started = time.perf_counter()
    run(inputs)
    return time.perf_counter() - started


def ways_to_compute(weights: Weights, batches: Batches, folder: pathlib.Path) -> dict[str, Way]:
    """All that can be computed here; the first is that in float32, of which the others' cosines are taken."""
    missing = report_of(weights).initialized
    ways = {}
    for name, (quantization, engine) in OURS.items():
        if not graph_engines.is_installed(engine.name):
            continue
        if quantization == CALIBRATED:
            roundings = calibration.roundings_of(weights, missing, batches)
            content = onnx_files.calibrated(weights, missing, roundings)[MODEL]
        else:
            content = onnx_files.convert(weights, missing, quantization)[MODEL]
        ways[name] = Way(engine.compile(content, 1), len(content) / 1e6, is_ours=True)

    path = folder / "float32.onnx"
    path.write_bytes(onnx_files.convert(weights, missing)[MODEL])
    others: dict[str, Callable[[], tuple[Run, float]]] = {
        "ONNX Runtime, float32": lambda: compiled(OnnxRuntime(), path),
        "ONNX Runtime, quantize_dynamic": lambda: dynamic(path),
        "OpenVINO, float32": lambda: compiled(OpenVino("float32"), path),
        "OpenVINO, bfloat16": lambda: compiled(OpenVino("bfloat16"), path),
        "OpenVINO, NNCF": lambda: by_nncf(path, batches),
    }
    for name, make in others.items():
        try:
            run, megabytes = make()
        except (ImportError, UserError):
            continue
        ways[name] = Way(run, megabytes, is_ours=False)
    return ways


def compiled(engine: graph_engines.GraphEngine, path: pathlib.Path) -> tuple[Run, float]:
    """A file in an engine, and its megabytes."""
    return engine.compile(str(path), 1), path.stat().st_size / 1e6


def dynamic(path: pathlib.Path) -> tuple[Run, float]:
    """The file as ONNX Runtime's own program quantizes it, with a scale for each column of a kernel."""
    from onnxruntime.quantization import quantize_dynamic

    target = path.with_name("dynamic.onnx")
    quantize_dynamic(path, target, per_channel=True)
    return compiled(OnnxRuntime(), target)


def by_nncf(path: pathlib.Path, batches: Batches) -> tuple[Run, float]:
    """The file as NNCF quantizes it for OpenVINO, with texts for its statistics."""
    import nncf
    import openvino

    texts = []
    for batch in batches:
        for ids, mask in zip(batch["input_ids"], batch["input_mask"], strict=True):
            row = {name: array[None, : mask.sum()] for name, array in _features(ids, mask).items()}
            texts.append(inputs_of(row))
    model = nncf.quantize(
        openvino.Core().read_model(str(path)),
        nncf.Dataset(texts),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=NUM_CALIBRATED,
    )
    target = path.with_name("nncf.xml")
    openvino.save_model(model, target)
    run, megabytes = compiled(OpenVino("float32"), target)
    return run, megabytes + target.with_suffix(".bin").stat().st_size / 1e6


def _features(ids: np.ndarray, mask: np.ndarray) -> dict[str, np.ndarray]:
    return {"input_ids": ids, "input_mask": mask, "segment_ids": 0 * ids}


def vectors_of(run: Run, batch: dict[str, np.ndarray]) -> np.ndarray:
    """Vectors of length 1, [B, D]."""
    vectors = run(inputs_of(batch))["embedding"]
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def sts_b(vectors: np.ndarray, tokenizer: Any, data: real_weights.Pairs, most: int) -> float:
    """Spearman's correlation of vectors in the order in which `batches_of` has put the texts of `data`."""
    texts = [*data[0], *data[1]]
    lengths = [min(len(ids), most - 2) for ids in tokenizer.encode_batch(texts)]
    order = np.argsort(lengths, kind="stable")
    restored = np.empty_like(vectors)
    restored[order] = vectors
    by_text = dict(zip(texts, restored, strict=True))

    def embed(chosen: Sequence[str]) -> np.ndarray:
        return np.stack([by_text[text] for text in chosen])

    return real_weights.scores(embed, {"test": data})["test"]


def latency() -> dict[str, dict[str, float]]:
    """Milliseconds of one text, the median of many calls that take turns, for one shared layer and six of their own."""
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 30_000, [1, LATENCY_TOKENS])
    text = _features(ids, np.ones_like(ids))
    milliseconds = {}
    for quantization in ("none", "int8"):
        runs = {}
        for groups in (1, 6):
            model = random_weights(groups)
            missing = report_of(model).initialized
            content = onnx_files.convert(model, missing, quantization)[MODEL]
            runs[groups] = OnnxRuntime().compile(content, 1)
        seconds: dict[int, list[float]] = {groups: [] for groups in runs}
        for _ in range(LATENCY_CALLS):
            for groups, run in runs.items():
                seconds[groups].append(seconds_of_one_text(run, text))
        one_group = 1e3 * float(np.median(seconds[1]))
        six_groups = 1e3 * float(np.median(seconds[6]))
        milliseconds[quantization] = {
            "shared_ms": round(one_group, 3),
            "own_layers_ms": round(six_groups, 3),
            "ratio": round(one_group / six_groups, 3),
        }
    return milliseconds


def random_weights(groups: int) -> Weights:
    """Six layers of the width of all-MiniLM-L6-v2 in some groups, random."""
    config = AlbertConfig(
        vocab_size=30_522,
        embedding_size=128,
        hidden_size=384,
        num_hidden_layers=6,
        num_hidden_groups=groups,
        num_attention_heads=12,
        intermediate_size=1536,
    )
    rng = np.random.default_rng(0)
    shapes = encoder_shapes(config)
    arrays = {name: rng.normal(0, 0.02, shape).astype("f4") for name, shape in shapes.items()}
    return Weights("random", config, arrays, PRETRAINING)


def versions() -> dict[str, str]:
    """Of the engines that are installed."""
    return {
        package: importlib.metadata.version(package)
        for package in ("onnxruntime", "openvino", "nncf")
        if graph_engines.is_installed(package)
    }


def page_lines(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The tables of the page, one for each model and set of instructions."""
    lines = []
    for run in runs:
        ways = run["ways"]
        fastest = max(way[SPEED] for way in ways.values() if not way["is_ours"])
        rows = [
            (
                f"**ours:** {title}" if way["is_ours"] else title,
                f"{way[SPEED]:.1f}",
                f"{way[SPEED] / fastest:.2f}",
                f"{way[SPEED_IN_OUR_BATCHES]:.1f}",
                f"{way[ONE_TEXT]:.1f}",
                f"{way['median_cosine']:.4f}",
                f"{way['least_cosine']:.3f}",
                f"{way['sts_b_spearman']:.4f}",
                f"{way['megabytes']:.1f}",
            )
            for title, way in ways.items()
        ]
        versions = [f"{package} {version}" for package, version in run["versions"].items()]
        about = [
            f"{run['model']}, {run['texts']} texts",
            f"{run['processor']}, {', '.join(run['instructions'])}",
            ", ".join(versions),
            f"{run['date']}, {run['commit']}",
        ]
        lines += [
            f"#### {run['model']}, {hidden_instructions.title_of(run['instructions'])}",
            "",
            *tables.wrapped("; ".join(about) + ":"),
            "",
            *tables.table(_COLUMNS, rows),
            "",
        ]
        lines += tables.wrapped(conclusion(run))
        lines.append("")
    return lines[:-1]


def conclusion(run: Mapping[str, Any]) -> str:
    """What a run says about ways that are near float32, all in the same batches, and about shared layers."""
    ways = run["ways"]
    others = {name: way for name, way in ways.items() if not way["is_ours"]}
    exact = {
        name: way for name, way in ways.items() if way["median_cosine"] >= TuneSettings.min_cosine
    }
    ours = _fastest(exact.keys() - others.keys(), ways)
    exact_other = _fastest(exact.keys() & others.keys(), ways)
    other = _fastest(others, ways)
    alone = min(exact, key=lambda name: exact[name][ONE_TEXT])
    speed = ways[ours][SPEED]
    sentences = [
        f"**Of the ways with a median cosine of at least {TuneSettings.min_cosine}, the fastest of ours is"
        f" {_in_words(ours)}. It has {speed / ways[exact_other][SPEED]:.2f} times the speed of the fastest of the"
        f" others, {_in_words(exact_other)}.**"
    ]
    if other != exact_other:
        sentences.append(
            f"Of all others, the fastest is {_in_words(other)} (cosine {ways[other]['median_cosine']:.3f}), and ours"
            f" has {speed / ways[other][SPEED]:.2f} times its speed."
        )
    shared = run["one_text_of_16_tokens"]
    sentences += [
        f"For one text at a time, {_in_words(alone)} is the fastest of the ways with this cosine"
        f" ({exact[alone][ONE_TEXT]:.1f} ms).",
        "A short text in a model of random weights with one shared layer takes"
        f" {shared['none']['ratio']:.2f} of the time of one with six layers of their own in float32, and"
        f" {shared['int8']['ratio']:.2f} in int8.",
    ]
    return " ".join(sentences)


def _in_words(name: str) -> str:
    """The name of a way: "int8, ONNX Runtime" -> "int8 in ONNX Runtime"."""
    if name in OURS:
        form, engine, *precision = name.split(", ")
    else:
        engine, form, *precision = name.split(", ")
    return " in ".join([form, engine, *precision])


def _fastest(names: Collection[str], ways: Mapping[str, Mapping[str, Any]]) -> str:
    """The fastest of some ways; of equal ones, the first by name."""
    return max(sorted(names), key=lambda name: ways[name][SPEED])


def plot(runs: Sequence[Mapping[str, Any]], path: pathlib.Path) -> None:
    """Texts per second against what is lost, one minus the cosine; a panel for each processor.

    The model is that with the most runs. The area of a point is that of its file.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    model = statistics.mode(run["model"] for run in runs)
    of_model = [run for run in runs if run["model"] == model]
    is_ours = {name: way["is_ours"] for run in of_model for name, way in run["ways"].items()}
    names = list(is_ours)
    figure, panels = pyplot.subplots(
        1,
        len(of_model),
        figsize=(3.2 * len(of_model) + 2.4, 3.8),
        layout="constrained",
        sharey=True,
        squeeze=False,
    )
    for axes, run in zip(panels[0], of_model, strict=True):
        for name, way in run["ways"].items():
            place = (way[SPEED], max(1 - way["median_cosine"], LEAST_LOST))
            color = "tab:blue" if way["is_ours"] else "tab:orange"
            axes.scatter(*place, 8 * way["megabytes"], color, alpha=0.35, linewidth=0)
            axes.annotate(
                str(names.index(name) + 1),
                place,
                ha="center",
                va="center",
                fontsize=7,
                weight="bold",
            )
        axes.set_title(hidden_instructions.title_of(run["instructions"]), fontsize=9)
        axes.set_yscale("log")
        axes.set_xlim(left=0)
        axes.margins(x=0.15, y=0.2)
    panels[0][0].set_ylabel("1 - median cosine with float32")
    figure.supxlabel(f"texts per second of one core, {model}", fontsize=9)
    legend = [
        f"{number}  {'ours: ' if is_ours[name] else ''}{name}"
        for number, name in enumerate(names, start=1)
    ]
    figure.legend(
        handles=[pyplot.Line2D([], [], linestyle="") for _ in legend],
        labels=legend,
        loc="outside right center",
        fontsize=7,
        handlelength=0,
        frameon=False,
    )
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    flags.run(main, EngineSettings, description=__doc__, positional=("model",))
