"""Prints the accuracy of a classifier and of its TFLite files on a GLUE development set, as a Markdown table.

python lab/tools/check_tflite.py runs/mrpc MRPC glue phone/model.tflite phone8/model.tflite
"""

import argparse
import os
import sys
from collections.abc import Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from albert_tf.core.errors import UserError
from albert_tf.core.files import read_bytes, read_json
from albert_tf.core.tables import table
from albert_tf.serving import predictors, tflite
from albert_tf.tasks.classification import glue


def main(model: str, task_name: str, data_dir: str, paths: Sequence[str]) -> None:
    """Prints a table with a row for the model and one for each file."""
    contents = {path: read_bytes(path) for path in paths}
    export = read_json(os.path.join(os.path.dirname(paths[0]), "export.json"))
    length = export["task"]["max_seq_length"]
    predictor = predictors.load_predictor(model, max_seq_length=length)
    task = glue.find_task(task_name, flag="task_name")
    examples = glue.read_glue(task, data_dir, "dev", flag="data_dir")
    items = [{"text_a": example.text_a, "text_b": example.text_b} for example in examples]
    labels = np.array([example.label for example in examples])
    names = predictor.model.config.labels
    expected = np.array([names.index(answer["label"]) for answer in predictor.predict(items)])
    features = predictor.table(list(map(predictor.check, items)))
    rows = [(model, "", f"{np.mean(expected == labels):.4f}", "")]
    for path, content in contents.items():
        run = tflite.runner(content)
        answers = []
        for row in range(len(features)):
            batch = features.batch(np.array([row]), length, predictor.sequence_names)
            answers.append(run(**batch)["logits"][0].argmax())
        accuracy, same = np.mean(answers == labels), np.mean(answers == expected)
        rows.append((path, f"{len(content):,}", f"{accuracy:.4f}", f"{same:.2%}"))
    print("\n".join(table("file | bytes | accuracy | same answer as the model", rows)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="folder of the model or run that was exported")
    parser.add_argument("task_name", help="a GLUE task")
    parser.add_argument("data_dir", help="folder of GLUE's files")
    parser.add_argument("paths", nargs="+", help="TFLite files of the model")
    try:
        main(**vars(parser.parse_args()))
    except UserError as error:
        sys.exit(str(error))
