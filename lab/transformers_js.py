"""Runs models of `export --format=transformers_js` in the JavaScript library @huggingface/transformers.

    (mkdir work && cd work && npm install --ignore-scripts @huggingface/transformers@4.3.2)
    python -m lab.transformers_js work --output_file=docs/results/data/transformers_js.json

Compares vectors, filled masks and tokens with those of Python.
"""

import argparse
import datetime
import json
import pathlib
import shutil
import subprocess

import numpy as np

from albert_tf import load_predictor
from albert_tf.core import files
from albert_tf.export import export_model
from albert_tf.text.tokenizer import Tokenizer
from lab.many_scripts import made_up_texts
from lab.web_page import cosines_of, short_texts

_EMBEDDER = "albert-minilm-l6"
_PRETRAINED = "albert-tiny-docs"
_MASKED = "Returns the [MASK] of it."
_PROGRAM = pathlib.Path(__file__).with_suffix(".mjs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path, help="in which npm has installed the library")
    parser.add_argument("--output_file", required=True)
    arguments = parser.parse_args()
    folder = arguments.folder
    for name in (_EMBEDDER, _PRETRAINED):
        output_dir = folder / "models" / name
        export_model(f"models/{name}", output_dir, format="transformers_js", overwrite=True)
    texts = short_texts()[:50]
    # Half a character cannot be in a file.
    tokenized = [text for text in made_up_texts(2000) if "\ud800" not in text]
    input_of_program = {
        "embedder": _EMBEDDER,
        "pretrained": _PRETRAINED,
        "masked": _MASKED,
        "texts": texts,
        "tokenized": tokenized,
    }
    (folder / "input.json").write_text(json.dumps(input_of_program))
    shutil.copy(_PROGRAM, folder)
    subprocess.run(["node", _PROGRAM.name], cwd=folder, check=True)
    output = json.loads((folder / "output.json").read_text())

    exact = load_predictor(f"models/{_EMBEDDER}").embed(texts)
    [answer] = load_predictor(f"models/{_PRETRAINED}").predict([_MASKED])
    theirs = [entry["score"] for entry in output["masks"]]
    ours = [entry["probability"] for entry in answer["masks"][0]]

    tokens = []
    for name, rows in output["ids"].items():
        expected = map(Tokenizer.from_pretrained(f"models/{name}").encode, tokenized)
        equal = sum(ids == row for ids, row in zip(expected, rows, strict=True))
        tokens.append({"model": name, "texts": len(tokenized), "equal": equal})

    result = {
        "date": datetime.date.today().isoformat(),
        "library": f"@huggingface/transformers {output['version']}",
        "texts": len(texts),
        "cosine_of_sentence_embedding": {
            dtype: cosines_of(np.array(rows), exact) for dtype, rows in output["vectors"].items()
        },
        "cosine_of_pipeline": {
            dtype: cosines_of(np.array(rows), exact) for dtype, rows in output["pooled"].items()
        },
        "largest_difference_of_a_filled_mask": float(np.abs(np.subtract(theirs, ours)).max()),
        "tokens": tokens,
    }
    files.write_bytes(arguments.output_file, files.json_bytes(result))
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
