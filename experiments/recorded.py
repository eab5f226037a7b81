"""Reading the JSON file of a row and a seed, which `engine.Result` writes."""

from typing import Any

from albert_tf.core import checksums
from albert_tf.core.errors import UserError

_TYPES = {"row": str, "seed": int, "declared": dict, "measures": dict}


def read_result(path: str) -> dict[str, Any]:
    """The content of the JSON file of a row and a seed.

    Raises:
      UserError: it cannot be read, was changed, or is another file.
    """
    content = checksums.read_json(path)
    for name, kind in _TYPES.items():
        if not isinstance(content.get(name), kind):
            raise UserError(f"{path}: is no result of an experiment: {name} is missing or wrong")
    return content
