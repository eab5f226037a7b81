"""The `README.md` of a model folder, from one template."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from albert_tf.model.heads import ModelWithHead

FILE = "README.md"
HEADER = "header"  # the key of `facts` for further entries of the header, such as a license

_TEMPLATE = """---
{header}
---

# {title}

A model of the class {kind} ([ALBERT](https://arxiv.org/abs/1909.11942)), written by albert_tf: {parameters:,}
parameters, {config.num_hidden_layers} layers (groups: {config.num_hidden_groups}, shared:
{config.share_parameters}), D {config.hidden_size}, E {config.embedding_size}, {config.num_attention_heads} attention
heads, {config.vocab_size:,} tokens, sequences of up to {config.max_position_embeddings} tokens.
{tables}
It repeats the content of its training text, including errors and prejudice, and was not checked for either.
"""


def model_card(model: "ModelWithHead", folder: str, facts: Mapping[str, Mapping[str, Any]]) -> str:
    """The card in Markdown, titled like the folder or its run; `facts` are tables by title, and `HEADER` for hubs."""
    parent, name = os.path.split(folder.rstrip("/") if "://" in folder else os.path.abspath(folder))
    header = {"library_name": "transformers", "tags": "[albert]"}
    if model.pipeline_tag:
        header["pipeline_tag"] = model.pipeline_tag
    header |= facts.get(HEADER, {})
    return _TEMPLATE.format(
        header="\n".join(f"{key}: {value}" for key, value in header.items()),
        title=os.path.basename(parent) if name == "model" else name,
        kind=type(model).__name__,
        parameters=model.count_params(),
        config=model.config,
        tables="".join(_table(name, rows) for name, rows in facts.items() if name != HEADER),
    )


def _table(title: str, rows: Mapping[str, Any]) -> str:
    lines = [f"| {name} | {_shown(value)} |" for name, value in rows.items()]
    return "\n".join(["", f"## {title}", "", "| | |", "|---|---|", *lines, ""]) if rows else ""


def _shown(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")
