"""Tables in Markdown and in aligned columns, for people to read."""

from collections.abc import Iterable, Sequence


def table(header: str, rows: Iterable[Iterable[object]]) -> list[str]:
    """The lines of a Markdown table; none if there are no rows."""
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return [f"| {header} |", "|" + "---|" * (header.count("|") + 1), *lines] if lines else []


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as lines, each ended: the first column is aligned to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for title, *cells in rows:
        cells = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        lines.append("  ".join([title.ljust(widths[0]), *cells]) + "\n")
    return "".join(lines)
