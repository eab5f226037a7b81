"""What differs between two files of values."""

import json
import math
import pathlib
from typing import Any

MISSING = "(missing)"


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """The values inside of nested dictionaries and lists, by the keys and indices that lead to them."""
    if isinstance(value, dict) and value:
        items = list(value.items())
    elif isinstance(value, list) and value:
        items = list(enumerate(value))
    else:
        return {path: value}
    inner: dict[str, Any] = {}
    for key, each in items:
        inner |= leaves(each, f"{path}.{key}" if path else str(key))
    return inner


def is_number(value: Any) -> bool:
    """Whether a value of JSON is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def difference(before: Any, after: Any) -> float:
    """How far apart two values are: the distance of numbers, and infinity for anything else that differs."""
    if before == after and type(before) is type(after):
        return 0.0
    if is_number(before) and is_number(after):
        if math.isnan(before) and math.isnan(after):
            return 0.0
        distance = abs(before - after)
        return math.inf if math.isnan(distance) else distance
    return math.inf


def differences(before: dict, after: dict, tolerance: float = 0.0) -> list[str]:
    """A line for each value that differs by more than the tolerance, the largest difference first.

    Only parts that both files have are compared, so that a few parts can be measured again.
    """
    rows = []
    for part in before.keys() & after.keys():
        first = leaves(before[part], part)
        second = leaves(after[part], part)
        for name in dict.fromkeys([*first, *second]):
            old = first.get(name, MISSING)
            new = second.get(name, MISSING)
            distance = difference(old, new)
            if distance > tolerance:
                rows.append((distance, name, old, new))
    rows.sort(key=lambda row: (-row[0], row[1]))
    lines = []
    for distance, name, old, new in rows:
        size = "" if math.isinf(distance) else f"by {distance:.3g}: "
        lines.append(f"{name}: {size}{_short(old)} -> {_short(new)}")
    return lines


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def read(path: str) -> dict:
    """The values of a file, by part."""
    return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))["values"]
