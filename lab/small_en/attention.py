"""Prints where masked tokens look: the entropy of each head's weights, and how much goes to each neighbor.

    python -m lab.small_en.attention --model=MODEL --input_file=held_out.txt

One token is masked in each of the first 100 lines of the text that have at least 40 tokens.
"""

import dataclasses
import itertools

import numpy as np
import tensorflow as tf

from albert_tf import Tokenizer, load_pretrained
from albert_tf.core import flags
from albert_tf.core.settings import Settings, setting
from albert_tf.core.tables import table

_LINES, _LENGTH, _NEIGHBORS = 100, 40, 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionSettings(Settings):
    """The model and the text."""

    model: str = setting("", "The model.", required=True, input_path=True)
    input_file: str = setting("", "Text, one sentence per line.", required=True, input_path=True)


def main(settings: AttentionSettings) -> None:
    """Prints a row for each head of each layer, with the means over lines."""
    tokenizer = Tokenizer.from_pretrained(settings.model)
    encoder = load_pretrained(settings.model).encoder
    with open(settings.input_file, encoding="utf-8") as lines:
        long = (ids for ids in map(tokenizer.encode, lines) if len(ids) >= _LENGTH)
        chosen = [ids[:_LENGTH] for ids in itertools.islice(long, _LINES)]
    input_ids = np.array([[tokenizer.cls_id, *ids, tokenizer.sep_id] for ids in chosen])
    rows = np.arange(len(input_ids))
    masked = np.random.default_rng(0).integers(1 + _NEIGHBORS, _LENGTH - _NEIGHBORS, len(rows))
    input_ids[rows, masked] = tokenizer.mask_id
    ones, zeros = np.ones_like(input_ids), np.zeros_like(input_ids)
    inputs = {"input_ids": input_ids, "input_mask": ones, "segment_ids": zeros}
    outputs = encoder(
        {name: tf.constant(value) for name, value in inputs.items()}, output_attentions=True
    )
    attentions = np.stack(outputs["attentions"], 1)[rows, :, :, masked]  # [rows, layers, N, L]
    entropies = -(attentions * np.log(attentions + 1e-9)).sum(-1).mean(0)
    offsets = range(-_NEIGHBORS, _NEIGHBORS + 1)
    header = " | ".join(["layer", "head", "entropy", *(f"{offset:+}" for offset in offsets)])
    cells = [
        (
            *(layer, head, f"{entropies[layer, head]:.2f}"),
            *(f"{attentions[rows, layer, head, masked + offset].mean():.2f}" for offset in offsets),
        )
        for layer, head in np.ndindex(entropies.shape)
    ]
    print(*table(header, cells), sep="\n")
    print(f"Equal weights have an entropy of {np.log(input_ids.shape[1]):.2f}.")


if __name__ == "__main__":
    flags.run(main, AttentionSettings, description=__doc__)
