"""Tables in aligned columns, for people to read."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as lines, each ended: the first column is aligned to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for title, *cells in rows:
        cells = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        lines.append("  ".join([title.ljust(widths[0]), *cells]) + "\n")
    return "".join(lines)
