"""The code of docs/guides/use_in_keras.md runs from top to bottom, and does what the page says."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
import tf_keras

from albert_tf import load_pretrained
from tests.helpers import ROOT

pytestmark = pytest.mark.slow  # the code trains

PAGE = (ROOT / "docs" / "guides" / "use_in_keras.md").read_text()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The names that the page's code leaves, the text that it prints, and the folder that it writes."""
    folder = tmp_path_factory.mktemp("keras")
    here = os.getcwd()
    (folder / "models").symlink_to(ROOT / "models")
    (folder / "runs").mkdir()
    values: dict = {}
    tf_keras.utils.set_random_seed(5)
    os.chdir(folder)
    try:
        exec("\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)), values)
    finally:
        os.chdir(here)
    return values, folder


def test_a_head_of_ones_own_learns_while_frozen_layers_stay(run):
    values, folder = run
    losses = values["history"].history["loss"]
    assert losses[-1] < 0.5 * losses[0]
    assert len((folder / "runs" / "log.csv").read_text().splitlines()) == 1 + len(losses)
    before = load_pretrained(ROOT / "models" / "albert-minilm-l6").named_variables()
    changed = {
        name
        for name, variable in values["encoder"].named_variables().items()
        if not np.array_equal(variable, before[name])
    }
    assert changed and not any("/embeddings/" in name for name in changed)
    assert np.argmin(values["history"].history["val_loss"]) == len(losses) - 1
    inputs = values["tokenizer"](values["texts"])
    np.testing.assert_array_equal(values["best"](inputs), values["model"](inputs))


def test_the_summary_counts_the_parameters_of_every_layer(run):
    lines: list[str] = []
    encoder = run[0]["encoder"]
    encoder.summary(print_fn=lines.append)
    groups = [f"{part}_{group}_0" for part in ("attention", "ffn") for group in range(3)]
    names = ("embeddings", "projection", *groups, "pooler")
    assert [layer.name for layer in encoder.layers] == list(names)
    assert sum(layer.count_params() for layer in encoder.layers) == encoder.count_params()
    text = "\n".join(lines)
    assert "unused" not in text
    for line in re.findall(r"^    (\S.*params: .*)$", PAGE, re.MULTILINE):
        assert line in text


def test_hidden_states_and_attention_have_the_shapes_that_the_page_names(run):
    states = run[0]["states"]
    attentions = run[0]["attentions"]
    tokens = run[0]["tokenizer"](run[0]["texts"])["input_mask"]
    assert [state.shape for state in states] == [(*tokens.shape, 384)] * 7
    np.testing.assert_array_equal(states[-1], run[0]["outputs"]["sequence_output"])
    assert [probability.shape[:2] for probability in attentions] == [(4, 12)] * 6
    for probabilities in attentions:
        np.testing.assert_allclose(np.sum(probabilities, axis=-1), 1, rtol=1e-5)
        assert np.all(np.where(tokens[:, None, None] == 1, 0, probabilities) < 1e-6)


def test_a_head_of_the_library_is_saved_with_what_it_has_learned(run):
    values, folder = run
    loaded = load_pretrained(folder / "my_reviews")
    assert loaded.config.labels == ("bad", "fair", "good")
    for name, variable in loaded.named_variables().items():
        np.testing.assert_array_equal(variable, values["classifier"].named_variables()[name])


def test_a_new_process_loads_what_keras_saved_after_a_class_is_imported(run):
    code = "from albert_tf import AlbertEncoder; import tf_keras;"
    code += "print(tf_keras.models.load_model('runs/best.keras').name)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=run[1],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == run[0]["model"].name, done.stderr
