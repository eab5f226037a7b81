"""Puts the page together: `page.html` with a description of the model, and with scripts from this folder."""

import html
import importlib.resources
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.core import files
from albert_tf.tasks.classification.predictor import ClassificationPredictor
from albert_tf.tasks.embedding.predictor import Embedder
from albert_tf.tasks.predictor import Predictor

_SERVER_SCRIPTS = ("server.js", "page.js")
_LICENSE = re.compile(rb"\A---\n(?:.*\n)*?license: *(\S+)\n(?:.*\n)*?---\n")


def server_page(predictor: Predictor, name: str, source: str = "") -> str:
    """The page that asks a server for answers.

    Args:
      name: the model's name in the addresses of requests.
      source: the model's folder, whose model card may name a license.
    """
    return assembled(description(predictor, name, source), _SERVER_SCRIPTS)


def description(predictor: Predictor, name: str, source: str) -> dict[str, Any]:
    """What `page.js` knows about a model."""
    described: dict[str, Any] = {
        "name": name,
        "kind": type(predictor).__name__,
        "prompts": predictor.prompts,
        "expects": predictor.expects,
        "about": _about(predictor, source),
    }
    if isinstance(predictor, Embedder):
        described["similarity"] = predictor.similarity_name
    if isinstance(predictor, ClassificationPredictor):
        described["num_texts"] = predictor.num_texts
    return described


def assembled(
    model: Mapping[str, Any], scripts: Sequence[str], parts: Mapping[str, str] | None = None
) -> str:
    """The page.

    Args:
      model: what its scripts know about the model.
      scripts: names of files in this folder, in the order in which they are run.
      parts: further elements by their `id`: data as text.
    """
    elements = [
        f'<script id="{id}" type="application/gzip+base85">{data}</script>'
        for id, data in (parts or {}).items()
    ]
    elements += [f"<script>\n{_file(name)}</script>" for name in scripts]
    contents = {
        "__TITLE__": html.escape(model["name"]),
        # "<" would end the script of the page in a text like "</script>".
        "__MODEL__": json.dumps(model).replace("<", "\\u003c"),
        "__SCRIPTS__": "\n".join(elements),
    }
    # In one pass, because a model's description may contain such a name.
    return re.sub("__[A-Z]+__", lambda match: contents[match[0]], _file("page.html"))


def _file(name: str) -> str:
    return importlib.resources.files(__package__).joinpath(name).read_text("utf-8")


def _about(predictor: Predictor, source: str) -> list[str]:
    """What a model is, in a few words each."""
    config = predictor.model.config
    facts = [
        f"{config.num_hidden_layers} layers, width {config.hidden_size}",
        f"{config.vocab_size:,} tokens",
        f"reads {predictor.task_settings['max_seq_length']:,} tokens of a text",
    ]
    count = getattr(predictor.model, "count_params", None)
    if count:
        facts.insert(0, f"{count():,} parameters")
    if license := _license(source):
        facts.append(f"license {license}")
    return facts


def _license(source: str) -> str:
    """The license in the header of the model card in a folder; "" if there is none."""
    card = f"{source}/README.md"
    match = _LICENSE.match(files.read_bytes(card)) if source and files.exists(card) else None
    return match[1].decode(errors="replace") if match else ""
