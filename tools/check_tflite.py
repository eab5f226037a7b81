"""Accuracy of a classifier's TFLite files on a GLUE development set, beside the model that they were made from.

python tools/check_tflite.py runs/mrpc MRPC glue phone/model.tflite phone8/model.tflite
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from albert_tf.core.files import read_bytes, read_json
from albert_tf.serving import predictors, tflite
from albert_tf.tasks.classification import glue


def main(model: str, task_name: str, data_dir: str, *paths: str) -> None:
    """Prints a row of a table for the model and for each file."""
    beside = read_json(os.path.join(os.path.dirname(paths[0]), "export.json"))
    length = beside["task"]["max_seq_length"]
    predictor = predictors.load_predictor(model, max_seq_length=length)
    task = glue.find_task(task_name, flag="task_name")
    examples = glue.read_glue(task, data_dir, "dev", flag="data_dir")
    items = [{"text_a": example.text_a, "text_b": example.text_b} for example in examples]
    labels = np.array([example.label for example in examples])
    names = predictor.model.config.labels
    wanted = np.array([names.index(answer["label"]) for answer in predictor.predict(items)])
    table = predictor.table(items)
    print("| file | bytes | accuracy | answers as the model's |\n|---|---|---|---|")
    print(f"| {model} | | {np.mean(wanted == labels):.4f} | |")
    for path in paths:
        content = read_bytes(path)
        run = tflite.runner(content)
        found = []
        for row in range(len(table)):
            features = table.batch(np.array([row]), length, predictor.sequence_names)
            found.append(run(**features)["logits"][0].argmax())
        accuracy, same = np.mean(found == labels), np.mean(found == wanted)
        print(f"| {path} | {len(content):,} | {accuracy:.4f} | {same:.2%} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
