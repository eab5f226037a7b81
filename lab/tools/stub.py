"""Writes albert_tf/__init__.pyi, the public names for type checkers, which cannot follow names that are loaded late.

python -m lab.tools.stub
"""

import inspect
import pathlib
import re
from typing import Any

import albert_tf
from albert_tf import functions

PAGE = pathlib.Path(albert_tf.__file__).with_suffix(".pyi")
_FIRST_LINES = """# For type checkers and editors, which cannot follow names that are loaded at their first use.
# `python -m lab.tools.stub` writes this file.

import os
from collections.abc import Sequence
from typing import Any

import pandas

"""
# A text; a path may be a `pathlib.Path`, and a list between commas a list.
_TEXT = "_Text = str | os.PathLike[str] | Sequence[str]"


def page() -> str:
    """The text of the stub."""
    names = [name for name in albert_tf.__all__ if name not in functions.MODULES or name == "fold"]
    imports = sorted(_import_of(name) for name in names)
    programs = [name for name in albert_tf.__all__ if name not in names]
    definitions = [_definition_of(name) for name in programs]
    return (
        _FIRST_LINES
        + "\n".join([*imports, "", "__version__: str", "", _TEXT, "", *definitions])
        + "\n"
    )


def _import_of(name: str) -> str:
    item = inspect.unwrap(getattr(albert_tf, name))
    return f"from {item.__module__} import {name} as {name}"


def _definition_of(name: str) -> str:
    """The function of a program with all its arguments, each on a line."""
    signature = functions.signature_of(name)
    lines = [f"def {name}("]
    has_star = False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not has_star:
            lines.append("    *,")
            has_star = True
        is_required = parameter.default is parameter.empty
        default = "" if is_required else f" = {_literal(parameter.default)}"
        annotation = "_Text" if parameter.annotation is str else _type(parameter.annotation)
        lines.append(f"    {parameter.name}: {annotation}{default},")
    lines.append(f") -> {_type(signature.return_annotation)}: ...")
    return "\n".join(lines)


def _literal(value: Any) -> str:
    """A default as ruff formats it."""
    return '"' + value.replace('"', '\\"') + '"' if isinstance(value, str) else repr(value)


def _type(annotation: Any) -> str:
    """A type without the names of modules, except that of pandas."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?!pandas)(?:[a-z_]\w*\.)+(?=[A-Z])", "", text)


if __name__ == "__main__":
    PAGE.write_text(page())
