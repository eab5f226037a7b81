"""The points of --search, all combinations of the values of some flags, and the picture of their scores."""

import dataclasses
import io
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.core.errors import UserError
from albert_tf.core.settings import Settings, value_type


def parts(search: str) -> list[tuple[str, str, str]]:
    """Each part of --search, the name of its flag, and its values."""
    found = []
    for part in search.split(";"):
        name, _, values = part.partition("=")
        found.append((part, name.strip(), values.strip()))
    return found


def points(search: str, *groups: Any) -> list[tuple[dict[str, Any], list[Any]]]:
    """The values of each point by flag, and the groups of settings with these values.

    Example:
      "learning_rate=1e-5,3e-5;train_batch_size=16" -> two points
    """
    values = {}
    for part, name, texts in parts(search):
        if not texts or name in values:
            reason = f"expected flags once each, as in learning_rate=1e-5,3e-5;train_batch_size=16,32; got {part!r}"
            raise UserError(f"--search: {reason}")
        values[name] = [_value(name, text.strip(), groups) for text in texts.split(",")]
    combinations = itertools.product(*values.values())
    return [
        _point(dict(zip(values, combination, strict=True)), groups) for combination in combinations
    ]


def _value(name: str, text: str, groups: tuple[Settings, ...]) -> Any:
    """A value of a flag, with the type of its field."""
    fields = {field.name: field for group in groups for field in dataclasses.fields(group)}
    if name not in fields or not fields[name].metadata["changes_results"]:
        raise UserError(f"--search: {name!r} is not a flag that changes results")
    if name == "seed":
        raise UserError("--search: leave out seed; --num_runs repeats every point with other seeds")
    kind = value_type(fields[name])
    try:
        return {"true": True, "false": False}[text] if kind is bool else kind(text)
    except (KeyError, ValueError):
        raise UserError(
            f"--search: {name} must not be {text!r}; expected {kind.__name__}"
        ) from None


def _point(values: dict[str, Any], groups: tuple[Settings, ...]) -> tuple[dict[str, Any], list]:
    changed = []
    for group in groups:
        own = {name: values[name] for name in values if name in group.names()}
        changed.append(dataclasses.replace(group, **own) if own else group)
    return values, changed


def plot(entries: Sequence[Mapping], metric: str) -> bytes:
    """A PNG file: a row for each point, the best on top, with a dot for each run and a bar at the median.

    Args:
      entries: {"settings": values by flag, "scores": of the runs, "median": values by metric}, the best first.

    Returns:
      The file's content; empty without matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return b""
    figure = Figure(figsize=(6, 1.2 + 0.3 * len(entries)), layout="constrained")
    axes = figure.add_subplot(xlabel=metric)
    for row, entry in enumerate(entries):
        axes.plot(entry["scores"], [row] * len(entry["scores"]), "o", color="#1f5fa8", alpha=0.6)
        axes.plot(entry["median"][metric], row, "|", color="#c4551d", markersize=16, mew=2)
    axes.set_yticks(
        range(len(entries)),
        [" ".join(map(str, entry["settings"].values())) for entry in entries],
    )
    axes.set_ylabel(" ".join(entries[0]["settings"]))
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    return content.getvalue()
