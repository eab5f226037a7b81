"""The page that works alone, in a real browser, from a file, without a network: every kind of model answers."""

import functools
import os

import numpy as np
import pytest

from albert_tf import load_predictor
from albert_tf.core.errors import UserError
from albert_tf.export import ExportSettings, export_model, main
from albert_tf.serving.page import engine
from albert_tf.serving.page import offline as offline_module
from lab.browser import PROGRAM, browser
from tests.helpers import ROOT, error_of

ENGINE = os.environ.get("ALBERT_WEB_ENGINE", f"{ROOT}/onnxruntime-web-{engine.VERSION}.tgz")
needs_browser = pytest.mark.skipif(
    not PROGRAM or not os.path.exists(ENGINE),
    reason="Chromium or the engine (ALBERT_WEB_ENGINE) is missing",
)
SHOWN = (
    "document.querySelector('#answer')?.innerText || document.querySelector('#error')?.innerText"
)


@pytest.fixture(scope="module")
def offline(tmp_path_factory):
    """A browser without a network."""
    with browser(str(tmp_path_factory.mktemp("profile"))) as page:
        page.send("Network.enable")
        none = {"latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        page.send("Network.emulateNetworkConditions", offline=True, **none)
        yield page


@pytest.fixture(scope="module", autouse=True)
def packs_once():
    """Compresses the engine once for all pages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offline_module, "packed", functools.cache(offline_module.packed))
        yield


def page_of(source: str, folder, **options) -> str:
    path = str(folder / "a page.html")
    settings = {"output_file": path, "format": "web", "web_engine": ENGINE, **options}
    return main(ExportSettings(model=source, **settings))


def opened(page, path: str) -> str:
    """What the page shows at once: the answer to its example."""
    page.send("Page.navigate", url="about:blank")
    page.send("Page.navigate", url=f"file://{path}".replace(" ", "%20"))
    return page.wait_for(SHOWN)


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("pretrained", "Best words"),
        ("embedder", "Similarity"),
        ("pairs", "perhaps"),
        ("score", "similarity: "),
        ("labels", "colour"),
        ("tags", "Ada"),
        ("span", "("),
        ("span_or_none", "("),
        ("choices", "A: pears"),
    ],
)
def test_every_kind_of_model_answers_at_once(offline, sources, tmp_path, kind, shown):
    path = page_of(sources(kind), tmp_path)
    assert shown in opened(offline, path)
    assert offline.value("document.querySelector('#error').innerText") == ""
    assert offline.value("document.querySelector('#request').hidden")


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("quantization", ["int8_rows", "int4"])
@pytest.mark.parametrize(("kind", "shown"), [("pretrained", "Best words"), ("pairs", "perhaps")])
def test_pages_in_small_weights_answer(offline, sources, tmp_path, kind, shown, quantization):
    path = page_of(sources(kind), tmp_path, quantization=quantization)
    assert shown in opened(offline, path)
    assert offline.value("document.querySelector('#error').innerText") == ""


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("quantization", ["none", "int8_rows", "int4"])
def test_vectors_are_those_of_onnx_runtime(offline, sources, tmp_path, quantization):
    folder = tmp_path / "export"
    export_model(sources("embedder"), folder, format="onnx", quantization=quantization)
    texts = ["the cat sat on a mat, late.", "a dog ran", "", "É 中文 it was cold - why?"]
    expected = np.stack([load_predictor(folder).embed(text) for text in texts])
    assert "Similarity" in opened(
        offline, page_of(sources("embedder"), tmp_path, quantization=quantization)
    )
    one_by_one = [offline.value(f"backend.embed([{text!r}], () => {{}})")[0] for text in texts]
    norms = np.linalg.norm(expected, axis=1) * np.linalg.norm(one_by_one, axis=1)
    cosines = (expected * one_by_one).sum(axis=1) / norms
    assert cosines.min() > 0.999


@needs_browser
@pytest.mark.slow
def test_lines_of_a_dropped_file_are_ranked_as_the_query_is_typed(offline, sources, tmp_path):
    predictor = load_predictor(sources("embedder"))
    lines = ["the cat sat on a mat", "a dog ran", "why was it cold?"]
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    opened(offline, page_of(sources("embedder"), tmp_path))
    offline.value("document.querySelectorAll('.modes button')[1].click()")
    offline.value("document.querySelector('#answer').replaceChildren()")
    offline.send("DOM.enable")
    root = offline.send("DOM.getDocument")["root"]["nodeId"]
    found = offline.send("DOM.querySelector", nodeId=root, selector="input[type=file]")
    offline.send(
        "DOM.setFileInputFiles", files=[str(tmp_path / "lines.txt")], nodeId=found["nodeId"]
    )
    offline.wait_for("document.querySelector('textarea').value.includes('a dog ran')")
    offline.value("document.querySelector('input[name=query]').focus()")
    offline.write("the dog ran")
    ranked = [entry["text"] for entry in predictor.rank("the dog ran", lines)]
    texts = "[...document.querySelectorAll('.found span:first-child')].map(each => each.innerText)"
    is_there = (
        f"JSON.stringify({texts}) === {str(ranked)!r}.replaceAll(\"'\", '\"').replaceAll(', ', ',')"
    )
    assert offline.wait_for(is_there)


def test_wrong_settings_are_one_line(sources, tmp_path):
    def error(**settings):
        return error_of(lambda: ExportSettings(model=sources("pairs"), **settings))

    assert error(format="web") == "--output_file is required"
    page = ExportSettings(model=sources("pairs"), format="web", output_file="a.html")
    assert page.used_quantization == "int4"
    assert error(format="onnx") == "--output_dir is required"
    both = error(format="web", output_file="a.html", output_dir="a")
    assert both == "--output_file contradicts --output_dir: give one of them"
    assert "contradicts --format=onnx" in error(format="onnx", output_dir="a", output_file="a.onnx")
    assert "contradicts --format=onnx" in error(format="onnx", output_dir="a", web_engine="x")
    settings = ExportSettings(model="absent", format="web", output_file="a", web_engine="absent")
    with pytest.raises(UserError, match="--web_engine=absent: no such file"):
        main(settings)
