"""Runs the scripts of the page in Node."""

import json
import pathlib
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.serving.page import html
from albert_tf.serving.page.tokenizer_data import tokenizer_data
from albert_tf.text.tokenizer import Tokenizer

PROGRAM = shutil.which("node")
FOLDER = pathlib.Path(html.__file__).parent

_TOKENIZE = """
const { data, texts } = JSON.parse(require("fs").readFileSync(0, "utf8"));
const tokenizer = makeTokenizer(data);
console.log(JSON.stringify(texts.map(text => tokenizer.encodeWithOffsets(text))));
"""
# Each line of output is a question to the model, or the answer to an item; each line of input is what the model says.
_PREDICT = """
const lines = require("readline").createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const read = async () => JSON.parse((await lines.next()).value);
const write = value => process.stdout.write(JSON.stringify(value) + "\\n");
(async () => {
  const { model, data, items } = await read();
  const compute = async (file, features) => { write({ file, features }); return read(); };
  const predictor = makePredictor(model, makeTokenizer(data), compute);
  for (const item of items) {
    try { write({ answer: await predictor.answer(item) }); }
    catch (error) { write({ answer: error.message }); }
  }
  process.exit();
})();
"""


def _script(tmp_path: pathlib.Path, names: Sequence[str], program: str) -> str:
    path = tmp_path / "program.js"
    path.write_text("".join((FOLDER / name).read_text() for name in names) + program)
    return str(path)


def tokenized(
    tokenizer: Tokenizer, texts: Sequence[str], tmp_path: pathlib.Path
) -> list[tuple[list[int], list[tuple[int, int]]]]:
    """The ids and spans of texts, as `encode_with_offsets` gives them."""
    assert PROGRAM
    data = {"data": tokenizer_data(tokenizer, "test"), "texts": texts}
    process = subprocess.run(
        [PROGRAM, _script(tmp_path, ["tokenizer.js"], _TOKENIZE)],
        input=json.dumps(data),
        capture_output=True,
        text=True,
        check=True,
    )
    rows = json.loads(process.stdout)
    return [(row["ids"], [(start, end) for start, end in row["spans"]]) for row in rows]


Outputs = Callable[[str, Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


def answers(
    model: Mapping[str, Any],
    tokenizer: Tokenizer,
    items: Sequence[Any],
    compute: Outputs,
    tmp_path: pathlib.Path,
) -> list[Any]:
    """The answers to items, or the messages of errors; `compute` gives the outputs of a file for its inputs."""
    assert PROGRAM
    names = ["tokenizer.js", "predictors.js"]
    process = subprocess.Popen(
        [PROGRAM, _script(tmp_path, names, _PREDICT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin and process.stdout

    def write(value: Any) -> None:
        assert process.stdin
        print(json.dumps(value), file=process.stdin, flush=True)

    found = []
    with process:
        write({"model": model, "data": tokenizer_data(tokenizer, "test"), "items": items})
        for line in process.stdout:
            message = json.loads(line)
            if "answer" in message:
                found.append(message["answer"])
                continue
            inputs = {name: np.array(rows, np.int64) for name, rows in message["features"].items()}
            outputs = compute(message["file"], inputs)
            write(
                {
                    name: {"data": array.ravel().tolist(), "dims": array.shape}
                    for name, array in outputs.items()
                }
            )
    assert process.returncode == 0
    return found
