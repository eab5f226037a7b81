"""The environment without TensorFlow (`make runtime`): exports of every task answer in it; what cannot says so."""

import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import urllib.request

import pytest

from albert_tf import load_predictor
from albert_tf.export import export_model
from tests.helpers import ROOT
from tests.serving.conftest import CLASSES, items_of
from tests.serving.test_onnx_model import assert_close

PYTHON = pathlib.Path(
    os.environ.get("RUNTIME_PYTHON", ROOT / ".venv.runtime/bin/python")
).absolute()
MOST_MEBIBYTES = 160

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="`make test-runtime` runs these tests")

ANSWER_ALL = """
import json, sys
from albert_tf import load_predictor
answers = {}
for kind, (folder, items) in json.load(sys.stdin).items():
    predictor = load_predictor(folder)
    answers[kind] = predictor.answered([predictor.check(item) for item in items])
print(json.dumps(answers))
"""


def run(*words: str, text: str = "") -> subprocess.CompletedProcess:
    """A finished program in the environment."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    return subprocess.run(
        [PYTHON, *words], input=text, capture_output=True, text=True, env=environment, timeout=240
    )


@pytest.fixture(scope="module")
def exports(sources, tmp_path_factory) -> dict[str, str]:
    """The folders of the exports of every kind of model."""
    folder = tmp_path_factory.mktemp("runtime")
    paths = {
        kind: export_model(sources(kind), folder / kind, format="onnx", quantization="none")
        for kind in CLASSES
    }
    return {kind: str(pathlib.Path(path).parent) for kind, path in paths.items()}


def test_exports_of_every_task_answer_as_their_models(sources, exports):
    questions = {kind: (exports[kind], items_of(kind)) for kind in CLASSES}
    done = run("-c", ANSWER_ALL, text=json.dumps(questions))
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    for kind in CLASSES:
        predictor = load_predictor(sources(kind))
        expected = predictor.answered([predictor.check(item) for item in items_of(kind)])
        assert_close(answers[kind], json.loads(json.dumps(expected)))


def test_lines_are_searched(exports, tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("the cat sat\na dog ran\nit was cold\n")
    words = ["search", exports["embedder"], f"--corpus={corpus}", "--top_k=1"]
    done = run("-m", "albert_tf", *words, text="a dog ran\n")
    assert done.returncode == 0, done.stderr
    [result] = json.loads(done.stdout)["results"]
    assert (result["index"], result["text"]) == (1, "a dog ran")


@contextlib.contextmanager
def served(folder: str):
    """The address of a server of an export."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    command = [PYTHON, "-m", "albert_tf", "serve", folder, f"--port={port}"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stdout:
                if address := re.search(r"http://\S+", line):
                    yield address[0].rstrip("/")
                    break
        finally:
            process.terminate()


def test_an_export_is_served(exports):
    with served(exports["pairs"]) as address:
        body = json.dumps({"instances": [{"text_a": "the cat", "text_b": "a dog"}]}).encode()
        name = pathlib.Path(exports["pairs"]).name
        request = urllib.request.Request(
            f"{address}/v1/models/{name}:predict", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            [answer] = json.load(response)["predictions"]
    expected = load_predictor(exports["pairs"]).predict([{"text_a": "the cat", "text_b": "a dog"}])
    assert_close([answer], json.loads(json.dumps(expected)))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["predict", "EXPORT", "--input_file=TABLE"], "pandas, which is not installed here"),
        (["convert", "MODEL", "--output_dir=out"], "needs TensorFlow, which is not installed here"),
        (["data", "create_pretraining_data"], "numba, which is not installed here"),
    ],
)
def test_what_needs_another_package_says_so_in_one_line(
    words, expected, sources, exports, tmp_path
):
    table = tmp_path / "table.csv"
    table.write_text("text\nanna\n")
    names = {"EXPORT": exports["labels"], "MODEL": sources("labels"), "TABLE": str(table)}
    for name, path in names.items():
        words = [word.replace(name, path) for word in words]
    done = run("-m", "albert_tf", *words)
    assert done.returncode in (1, 2)
    [line] = done.stderr.splitlines()
    assert expected in line


def test_the_environment_is_small_and_has_no_tensorflow():
    done = run("-c", "import importlib.util; print(importlib.util.find_spec('tensorflow'))")
    assert done.stdout.strip() == "None"
    packages = next((PYTHON.parents[1] / "lib").glob("python3*/site-packages"))
    sizes = [path.stat().st_size for path in packages.rglob("*") if path.suffix != ".pyc"]
    assert sum(sizes) / 2**20 < MOST_MEBIBYTES


def test_the_first_answer_loads_no_package_that_it_does_not_need(exports):
    script = """
import sys
from albert_tf import load_predictor
load_predictor(sys.argv[1]).predict(["a cat"])
print(sorted({name.partition(".")[0] for name in sys.modules}))
"""
    done = run("-c", script, exports["tags"])
    assert done.returncode == 0, done.stderr
    for name in ("pandas", "scipy", "sklearn", "numba", "onnx", "tensorflow", "starlette"):
        assert f"'{name}'" not in done.stdout
