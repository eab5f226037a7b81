"""The path of the JSON file of a row and a seed, and reading this file, which `engine.Result` writes."""

import os
from typing import Any

from albert_tf.core import files
from albert_tf.core.errors import UserError
from lab.experiments.declarations import Experiment, Row, file_name

_TYPES = {"row": str, "seed": int, "declared": dict, "measures": dict}


def result_path(results_dir: str, experiment: Experiment, scale: str, row: Row, seed: int) -> str:
    """The path of the JSON file of a row and a seed; `scale` is the name of the scale."""
    name = f"{file_name(row.name)}-seed{seed}.json"
    return os.path.join(results_dir, experiment.name, scale, name)


def read_result(path: str) -> dict[str, Any]:
    """The content of the JSON file of a row and a seed; raises a `UserError` if it is damaged or another file."""
    content = files.read_json(path)
    for name, kind in _TYPES.items():
        if not isinstance(content.get(name), kind):
            raise UserError(f"{path}: is not a result of an experiment: {name} is missing or wrong")
    expected = f"{file_name(content['row'])}-seed{content['seed']}.json"
    if expected != os.path.basename(path):
        raise UserError(f"{path}: holds the result of another row or seed; rename it to {expected}")
    return content
