"""The `README.md` of a model folder: description, sizes, training data, results, limits, use."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from albert_tf.model.heads import ModelWithHead

FILE = "README.md"


class CardText(NamedTuple):
    """Sentences of a model card.

    Attributes:
      description: noun phrase after "ALBERT:".
      limits: complete sentences about what the model cannot do.
      pipeline_tag: the task's name on model hubs; "" if they have none.
    """

    description: str
    limits: str = ""
    pipeline_tag: str = ""


class Card(NamedTuple):
    """The content of a model card, besides the sizes of the model.

    Attributes:
      sections: tables of facts, by title: "Data", "Training", "Results", "Task".
      text: sentences about the model; None uses those of its class.
      header: more entries of the header for model hubs, such as `license`.
    """

    sections: Mapping[str, Mapping[str, Any]] = {}
    text: CardText | None = None
    header: Mapping[str, str] = {}


# For each class of model, independent of its task; a task can provide its own (`TaskDefinition.card`).
_TEXTS = {
    "AlbertForPreTraining": CardText(
        "a pretrained encoder with masked-LM and sentence-order heads",
        "It completes text and orders sentences; for a task of your own, fine-tune it first.",
        "fill-mask",
    ),
    "AlbertForSequenceClassification": CardText(
        "a text classifier",
        "It gives one of its labels to any text, also to text unlike its training data.",
        "text-classification",
    ),
    "AlbertForTokenClassification": CardText(
        "a tagger of words, such as those of names",
        "It knows only the types of entities in its training data, and expects text like that data.",
        "token-classification",
    ),
    "AlbertForMultipleChoice": CardText(
        "a reader that chooses one of several answers",
        "It chooses one of the options even if none is right.",
        "multiple-choice",
    ),
    "AlbertForSpan": CardText(
        "a reader that finds the answer in a text",
        "It gives a part of the text as the answer even if the text does not answer the question.",
        "question-answering",
    ),
    "AlbertForEmbedding": CardText(
        "an encoder with one vector for each text, whose cosines say how alike the texts are",
        "It knows likeness as in its training data, and reads only the beginning of a long text.",
        "sentence-similarity",
    ),
    "AlbertForSpanOrNone": CardText(
        "a reader that finds the answer in a text, or says that there is none",
        "Its head is not one of transformers'; albert_tf runs it.",
    ),
}

_MULTI_LABEL_TEXT = CardText(
    "a text classifier that gives any number of its labels",
    "A label is given if its probability reaches a threshold; `thresholds` in config.json has those of all labels.",
    "text-classification",
)


def model_card(model: "ModelWithHead", name: str, card: Card) -> str:
    """The card in Markdown, with the header for model hubs."""
    kind, text = type(model).__name__, card.text
    if kind == "AlbertForSequenceClassification" and model.config.is_multi_label:
        text = text or _MULTI_LABEL_TEXT
    text = text or _TEXTS.get(kind) or CardText(f"a model with the head of {kind}")
    header = ["library_name: transformers"]
    header += [f"pipeline_tag: {text.pipeline_tag}"] if text.pipeline_tag else []
    header += [f"{name}: {value}" for name, value in card.header.items()]
    known = {title: rows for title, rows in card.sections.items() if rows}
    parts = [
        "\n".join(["---", *header, "tags: [albert]", "---"]),
        f"# {name}",
        f"ALBERT ([paper](https://arxiv.org/abs/1909.11942)): {text.description}, written by albert_tf.",
        "## Sizes",
        _table(_sizes(model)),
        *(part for title, rows in known.items() for part in (f"## {title}", _table(rows))),
        "## Limits",
        _limits(text.limits, known),
        "## Use",
        _usage(kind, name),
    ]
    return "\n\n".join(parts) + "\n"


def _sizes(model: "ModelWithHead") -> dict[str, Any]:
    config = model.config
    return {
        "parameters": model.count_params(),
        "layers": config.num_hidden_layers,
        "groups of layers": config.num_hidden_groups,
        "shared by the layers of a group": config.share_parameters,
        "width of the embeddings, E": config.embedding_size,
        "width of the encoder, D": config.hidden_size,
        "attention heads": config.num_attention_heads,
        "width of the feed-forward layer, F": config.intermediate_size,
        "vocabulary, V": config.vocab_size,
        "longest sequence, tokens": config.max_position_embeddings,
    }


def _limits(of_model: str, sections: Mapping[str, Mapping[str, Any]]) -> str:
    sentences = [
        of_model,
        "" if "Results" in sections else "Its quality was not measured.",
        "" if "Data" in sections else "Its training data is not recorded here.",
        "It repeats the content of its training text, including errors and prejudice, and was not checked for either.",
    ]
    return " ".join(filter(None, sentences))


def _usage(kind: str, name: str) -> str:
    if kind != "AlbertForPreTraining":
        return f"```\npython -m albert_tf.predict --model={name}\n```"
    return f"""```python
from albert_tf import load_pretrained

model = load_pretrained("{name}")
outputs = model({{"input_ids": [[2, 13, 3]]}})  # [CLS], a token, [SEP]
```"""


def _table(rows: Mapping[str, Any]) -> str:
    lines = [f"| {name} | {_shown(value)} |" for name, value in rows.items()]
    return "\n".join(["| | |", "|---|---|", *lines])


def _shown(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value).replace("|", "\\|").replace("\n", " ")
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def title_of(folder: str) -> str:
    """A title for the model in a folder: the name of the folder or, if it is a run's `model`, of the run."""
    path = os.path.normpath(folder) if "://" not in folder else folder.rstrip("/")
    parent, name = os.path.split(path)
    return os.path.basename(parent) if name == "model" and parent else name
