"""Tables in Markdown."""

from collections.abc import Iterable


def table(header: str, rows: Iterable[Iterable[object]]) -> list[str]:
    """The lines of a Markdown table; none if there are no rows."""
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return [f"| {header} |", "|" + "---|" * (header.count("|") + 1), *lines] if lines else []
