"""Tables and paragraphs in Markdown."""

import textwrap
from collections.abc import Iterable


def table(header: str, rows: Iterable[Iterable[object]]) -> list[str]:
    """The lines of a Markdown table; none if there are no rows."""
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return [f"| {header} |", "|" + "---|" * (header.count("|") + 1), *lines] if lines else []


def wrapped(text: str, indent: str = "") -> list[str]:
    """The lines of a paragraph, of at most 120 columns; links are not broken."""
    options = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.wrap(text, 120, subsequent_indent=indent, **options)
