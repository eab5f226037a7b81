"""Writes docs/reference/api.md, the reference of the public names, from their signatures and docstrings.

python -m lab.tools.api_reference
"""

import dataclasses
import inspect
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import albert_tf
from albert_tf import functions
from albert_tf.model.heads import ModelWithHead
from albert_tf.tasks.predictor import Predictor

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "reference" / "api.md"
_INTRODUCTION = """# Python reference

The names that `import albert_tf` offers, and the classes that they return; written by
`python -m lab.tools.api_reference` from the docstrings. An example is in the
[README](../../README.md#use-a-model). Every program is a function, whose arguments are its flags: a path,
a list or a table in the place of a file. What a predictor takes and answers is listed in
[models.md](models.md#predict).

In shapes, B is the batch, L the length in tokens, D the hidden width, P the number of masked positions, V the size of
the vocabulary, C the number of choices or classes, K the number of candidates for a start or an end. `UserError` is
raised for wrong input, with one line that says what was expected, what was given and what to change. TensorFlow is
loaded when a name is first used; its log of start-up messages is off, unless it was imported before `albert_tf` or
`TF_CPP_MIN_LOG_LEVEL` is set.
"""
_RETURNED = {"load_predictor": Predictor, "load_pretrained": ModelWithHead}
# Methods for users; the other methods of these classes are for the library itself, and for writing a task.
_METHODS = {
    "Predictor": ("__call__", "predict", "embed", "encode", "similarity", "rank", "score"),
    "Tokenizer": (
        "__call__",
        "from_pretrained",
        "from_file",
        "save_pretrained",
        "encode",
        "encode_batch",
        "encode_with_offsets",
        "decode",
        "id_to_token",
        "token_to_id",
        "vocabulary",
    ),
    "AlbertConfig": (
        "from_name",
        "from_json_file",
        "from_dict",
        "replace",
        "with_labels",
        "labels",
        "to_dict",
        "to_json_string",
    ),
}
_LINE = 88  # maximum length of a signature on one line


def page() -> str:
    """The text of docs/reference/api.md."""
    parts = [_INTRODUCTION]
    for name in albert_tf.__all__:
        if name in functions.MODULES and name != "fold":
            parts.append(section_of_function(name))
        else:
            parts.append(section(name, inspect.unwrap(getattr(albert_tf, name))))
        if returned := _RETURNED.get(name):
            parts.append(section(returned.__name__, returned))
    return "\n".join(parts)


def section_of_function(name: str) -> str:
    """The function of a program: the arguments that flags do not have, and where its flags are."""
    full = functions.signature_of(name)
    takes_data = {*functions.further_names(name), *functions.data_of(name)}
    takes_data -= {functions.SHORT_NAMES.get(short) for short in takes_data}
    kept = [
        parameter
        for parameter in full.parameters.values()
        if parameter.default is parameter.empty or parameter.name in takes_data
    ]
    flags = inspect.Parameter("flags", inspect.Parameter.VAR_KEYWORD)
    command = functions.words_of(name)
    anchor = f"cli.md#albert-tf-{command.replace(' ', '-')}"
    parts = [
        f"## {name}",
        _code(signature(name, full.replace(parameters=[*kept, flags]))),
        markdown(functions.docstring_of(name, has_settings=False)),
        f"Flags: [albert-tf {command}]({anchor}).",
    ]
    return "\n\n".join(parts) + "\n"


def section(name: str, item: Any) -> str:
    """A function, or a class with its methods."""
    parts = [f"## {name}", markdown(inspect.getdoc(item))]
    if dataclasses.is_dataclass(item):
        parts.append(_table_of_fields(item))
    elif not inspect.isclass(item):
        parts.insert(1, _code(signature(name, item)))
    elif "__init__" in vars(item) and not inspect.isabstract(item):
        parts.insert(1, _code(signature(name, item.__init__)))
        parts.append(markdown(inspect.cleandoc(item.__init__.__doc__ or "")))
    for method_name, method in methods(item):
        is_call = method_name == "__call__"
        parts.append(f"### {name.lower()}(...)" if is_call else f"### {name}.{method_name}")
        if not isinstance(method, property):
            call = "model" if method_name == "call" else f"{name}.{method_name}"
            if method_name == "__call__":
                call = name.lower()
            parts.append(_code(signature(call, method)))
        parts.append(markdown(inspect.getdoc(method) or ""))
    return "\n\n".join(filter(None, parts)) + "\n"


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def _table_of_fields(cls: Any) -> str:
    """A table of the fields of settings; fields without a declaration are left out."""
    if not any(field.metadata for field in dataclasses.fields(cls)):
        return ""
    rows = ["Its fields, which are its keyword arguments:", ""]
    rows += ["| field | default | meaning |", "|---|---|---|"]
    for field in dataclasses.fields(cls):
        if declared := field.metadata:
            choices = f" One of {', '.join(declared['choices'])}." if declared["choices"] else ""
            rows.append(f"| `{field.name}` | `{field.default}` | {declared['help']}{choices} |")
    return "\n".join(rows)


def methods(cls: Any) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class defines itself, without the constructor."""
    if not inspect.isclass(cls):
        return
    for name, value in vars(cls).items():
        is_method = callable(value) or isinstance(value, property | classmethod | staticmethod)
        is_for_users = not name.startswith("_")
        if cls.__name__ in _METHODS:
            is_for_users = name in _METHODS[cls.__name__]
        if is_method and is_for_users:
            yield name, value if isinstance(value, property) else getattr(cls, name)


def signature(name: str, function: Any) -> str:
    """A call as users write it, with types and defaults, without `self` and without the names of modules."""
    full = function
    if not isinstance(function, inspect.Signature):
        full = inspect.signature(function)
    parameters = [parameter for parameter in full.parameters.values() if parameter.name != "self"]
    one_line = _plain(f"{name}{full.replace(parameters=parameters)}")
    if len(one_line) <= _LINE:
        return one_line
    parts = []
    has_star = False
    for parameter in parameters:
        if parameter.kind == parameter.KEYWORD_ONLY and not has_star:
            parts.append("*")
            has_star = True
        parts.append(str(parameter))
    ends = one_line[one_line.rindex(")") :]
    return _plain("\n".join([f"{name}(", *(f"    {part}," for part in parts), ends]))


def _plain(code: str) -> str:
    code = re.sub(r"(->|:) '([^']*)'", r"\1 \2", code)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", code).replace("'", '"')


def markdown(doc: str) -> str:
    """A docstring in Google's style as Markdown: sections become bold titles and lists."""
    parts = re.split(r"^(Args|Attributes|Returns|Raises|Example|Source):", doc, flags=re.MULTILINE)
    lines = [parts[0].strip()]
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        text = inspect.cleandoc(body)
        if title == "Example":  # its lines are indented; what follows is text
            example, text = re.fullmatch(r"\n((?:  [^\n]*\n?)+)(.*)", body, re.DOTALL).groups()
            lines += ["", "**Example**", "", "```", inspect.cleandoc(example), "```"]
            if text.strip():
                lines += ["", text.strip()]
        elif title in ("Returns", "Source"):
            lines += ["", f"**{title}:** {text}"]
        else:
            entry = re.compile(r"^(\w[\w, ]*): ", re.MULTILINE)
            lines += ["", f"**{title}**", "", entry.sub(_item, text)]
    return "\n".join(lines)


def _item(match: re.Match) -> str:
    return f"- {', '.join(f'`{name}`' for name in match[1].split(', '))}: "


if __name__ == "__main__":
    PAGE.write_text(page())
