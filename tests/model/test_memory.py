"""Estimates of memory are below what was measured, and not far below where activations are most of it."""

import json

import pytest

from albert_tf import AlbertConfig
from albert_tf.model import memory
from tests.helpers import ROOT

MEASURED = json.loads((ROOT / "lab/benchmarks/results/2026-11-21/results.json").read_text())
# Name of the measurement -> size of the model, rows, length; the least share of the measured bytes.
STEPS = {
    "training_step.8x512.float32.ours": ("base", 8, 512, 0.7),
    "training_step.8x512.bfloat16.ours": ("base", 8, 512, 0.65),
    "training_step.16x128.float32.ours": ("base", 16, 128, 0.6),
    "growth.batch.32": ("base", 32, 128, 0.65),
    "growth.batch.1": ("base", 1, 128, 0.25),
    "memory.large.2x512.ours": ("large", 2, 512, 0.7),
    "memory.xlarge.1x512.ours": ("xlarge", 1, 512, 0.7),
    "memory.xxlarge.1x128.ours": ("xxlarge", 1, 128, 0.4),
    "memory.base.8x512.ours_recomputed": ("base", 8, 512, 0.35),
    "memory.xlarge.1x512.ours_recomputed": ("xlarge", 1, 512, 0.2),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_training_step_needs_no_less_than_its_estimate(name):
    size, rows, length, share = STEPS[name]
    config = AlbertConfig.from_name(f"albert-{size}-v2")
    embedding, width = config.embedding_size, config.hidden_size
    num_parameters = (
        config.vocab_size * embedding + 4 * width**2 + 2 * width * config.intermediate_size
    )
    estimate = memory.training_bytes(
        config,
        num_parameters,
        rows,
        length,
        is_half="bfloat16" in name,
        recomputes="recomputed" in name,
    )
    measured = MEASURED["measurements"][name]
    # The weights and the moments were there at the start.
    needed = measured["peak_bytes"] - measured["values"]["start_bytes"] + 8 * num_parameters
    print(f"| {name} | {estimate / 1e9:.2f} | {needed / 1e9:.2f} | {estimate / needed:.0%} |")
    assert share * needed < estimate < needed


def test_a_prediction_needs_the_widest_layer_or_the_probabilities():
    config = AlbertConfig(
        vocab_size=9, embedding_size=5, hidden_size=8, num_attention_heads=2, intermediate_size=30
    )
    assert memory.inference_bytes(config, 3, 7) == 4 * 3 * 7 * (8 + 30)
    assert memory.inference_bytes(config, 3, 50) == 4 * 3 * 2 * 50 * 50
