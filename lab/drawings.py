"""Draws the pictures of the pages that show no measurement: python -m lab.drawings.

docs/pictures/sharing.png: BERT beside ALBERT and a folded model; pipeline.png: the commands, and what they make.
"""

import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from albert_tf.model.config import AlbertConfig
from lab.report import COLORS, save

matplotlib.use("Agg")

PICTURES = pathlib.Path(__file__).parents[1] / "docs" / "pictures"
_BASE = {
    "vocab_size": 30000,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}


# --- BERT beside ALBERT ---


def num_parameters(config: AlbertConfig) -> int:
    """The parameters of an encoder with its pooler, without building it."""
    width = config.hidden_size
    embedding = config.embedding_size
    rows = config.vocab_size + config.type_vocab_size + config.max_position_embeddings
    tables = rows * embedding + 2 * embedding  # with a LayerNorm
    projection = 0 if embedding == width else (embedding + 1) * width
    attention = 4 * (width + 1) * width + 2 * width  # query, key, value, output; LayerNorm
    inner = config.intermediate_size
    feed_forward = (width + 1) * inner + (inner + 1) * width + 2 * width
    layers = range(config.num_hidden_layers)
    attention_groups = len({config.attention_group_of_layer(layer) for layer in layers})
    ffn_groups = len({config.ffn_group_of_layer(layer) for layer in layers})
    pooler = (width + 1) * width
    return tables + projection + attention_groups * attention + ffn_groups * feed_forward + pooler


def draw_sharing() -> None:
    """Three stacks of twelve layers, a color for each set of weights, on tables as wide as E."""
    # No color stands for weights of two models; dark ones, because white text is on them.
    viridis = matplotlib.colormaps["viridis"]
    colors = {
        "BERT-base": [viridis(0.7 * layer / 11) for layer in range(12)],
        "ALBERT-base": COLORS[:1],
        "folded: three groups": COLORS[1:4],
    }
    models = {
        "BERT-base": AlbertConfig(**_BASE, embedding_size=768, share_parameters="none"),
        "ALBERT-base": AlbertConfig(**_BASE, embedding_size=128),
        "folded: three groups": AlbertConfig(**_BASE, embedding_size=128, num_hidden_groups=3),
    }
    figure, panels = plt.subplots(1, len(models), figsize=(9.6, 4.4), layout="constrained")
    for axes, (name, config) in zip(panels, models.items(), strict=True):
        _draw_stack(axes, config, colors[name])
        megabytes = 4 * num_parameters(config) / 1e6
        number = f"{num_parameters(config) / 1e6:.1f} million parameters, {megabytes:.0f} MB"
        axes.set_title(f"{name}\n{number}", fontsize=9)
    save(figure, PICTURES / "sharing.png")


def _draw_stack(axes: Axes, config: AlbertConfig, colors: Sequence[Any]) -> None:
    groups = [config.attention_group_of_layer(layer) for layer in range(config.num_hidden_layers)]
    for layer, group in enumerate(groups):
        axes.barh(layer + 1.6, 1.0, height=0.8, color=colors[group])
        text = f"layer {layer + 1}: weights {group + 1}"
        axes.text(0, layer + 1.6, text, color="white", ha="center", va="center", fontsize=7)
    width = config.embedding_size / config.hidden_size
    axes.barh(0, width, height=1.0, color="#999999")
    table = config.vocab_size * config.embedding_size / 1e6
    text = f"word table, E = {config.embedding_size}: {table:.1f} million parameters"
    axes.text(0, -0.75, text, ha="center", va="center", fontsize=8)
    for bar in axes.patches:
        bar.set_x(-bar.get_width() / 2)
    axes.set(xlim=(-0.6, 0.6), ylim=(-1.2, 14))
    axes.axis("off")


# --- The commands ---


class _Box(NamedTuple):
    text: str
    column: float
    row: float
    is_yours: bool = False


class _Arrow(NamedTuple):
    start: str
    end: str
    label: str
    is_command: bool = True


_BOXES = {
    "bert": _Box("a BERT\nor ALBERT", 0, 2, is_yours=True),
    "small": _Box("folded\nALBERT", 1.4, 2),
    "pretrained": _Box("pretrained\nmodel", 2.8, 1),
    "text": _Box("text", 0, 0, is_yours=True),
    "records": _Box("vocabulary,\nrecords", 1.4, 0),
    "tuned": _Box("fine-tuned\nmodel", 4.2, 1),
    "table": _Box("table with\nlabels", 4.2, 0, is_yours=True),
    "answers": _Box("answers", 5.6, 2),
    "files": _Box("ONNX, SavedModel,\nTFLite, HTML page", 5.6, 0),
}
_ARROWS = (
    _Arrow("bert", "small", "fold"),
    _Arrow("small", "pretrained", "distill"),
    _Arrow("bert", "pretrained", "as it is", is_command=False),
    _Arrow("text", "records", "data ..."),
    _Arrow("records", "pretrained", "pretrain"),
    _Arrow("pretrained", "tuned", "classify, tag,\nsquad, race, embed"),
    _Arrow("table", "tuned", "", is_command=False),
    _Arrow("tuned", "answers", "predict, search,\nserve, score"),
    _Arrow("tuned", "files", "export"),
)


def draw_pipeline() -> None:
    """Two ways to a model, by folding and by pretraining; then tasks, answers and files."""
    figure, axes = plt.subplots(figsize=(10.4, 3.7), layout="constrained")
    for box in _BOXES.values():
        color = "#f6d5c5" if box.is_yours else "#dce7f5"
        style = {"boxstyle": "round,pad=0.6", "facecolor": color, "edgecolor": "#666666"}
        axes.text(box.column, box.row, box.text, ha="center", va="center", bbox=style, fontsize=9)
    for arrow in _ARROWS:
        start = _BOXES[arrow.start]
        end = _BOXES[arrow.end]
        ends = {"xy": (end.column, end.row), "xytext": (start.column, start.row)}
        shape = {"arrowstyle": "-|>", "color": "#444444", "shrinkA": 36, "shrinkB": 36}
        axes.annotate("", **ends, arrowprops=shape)
        # Commands stand above the middle of their arrow, other words below it.
        shift = 0.17 if arrow.is_command else -0.12
        middle = ((start.column + end.column) / 2, (start.row + end.row) / 2 + shift)
        family = "monospace" if arrow.is_command else "sans-serif"
        color = COLORS[0] if arrow.is_command else "#444444"
        edge = "bottom" if arrow.is_command else "top"
        options: dict[str, Any] = {"color": color, "family": family, "ha": "center", "va": edge}
        axes.text(*middle, arrow.label, fontsize=7, **options)
    axes.set(xlim=(-0.6, 6.3), ylim=(-0.5, 2.5))
    axes.set_title(
        "albert-tf: blue labels are its commands, and orange is what you bring", fontsize=10
    )
    axes.axis("off")
    save(figure, PICTURES / "pipeline.png")


def main() -> None:
    """Draws both pictures."""
    draw_sharing()
    draw_pipeline()


if __name__ == "__main__":
    main()
