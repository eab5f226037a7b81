"""A further format is one class and one entry of `FORMATS`: `toy.py` is written, read and trained on."""

import json

import numpy as np

from albert_tf.data.record_formats import FORMATS
from albert_tf.data.record_set import find_pretraining_records
from tests.data.record_formats.test_packed import evaluation_batches
from tests.data.record_formats.toy import ToyFormat
from tests.helpers import made_up_text, run_script, train_spm


def test_a_toy_format_is_written_read_and_trained_on(config_file, tmp_path, monkeypatch):
    text = made_up_text(60, seed=2)
    (tmp_path / "text.txt").write_text(text)
    model = train_spm(tmp_path / "spiece.model", text.splitlines(), vocab_size=150)
    config = json.loads(config_file.read_text())
    config_file.write_text(json.dumps({**config, "vocab_size": 150, "max_position_embeddings": 32}))
    # In a process of its own, because the flags know the formats from the start.
    arguments = (tmp_path / "text.txt", model, config_file, tmp_path)
    done = run_script("-m tests.data.record_formats.toy", *arguments)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2]
    assert len({json.loads(line)["masked_lm_loss"] for line in lines}) == 2

    monkeypatch.setitem(FORMATS, "toy", ToyFormat())
    record_set = find_pretraining_records(str(tmp_path / "records"), "input_file")
    counts = record_set.metadata["counts"]
    assert record_set.num_examples == counts["examples"] == counts["records"] > 60
    (batch,) = evaluation_batches(record_set, record_set.num_examples)
    assert batch["input_mask"].sum() == counts["tokens_in_records"]
    weights, positions = batch["masked_lm_weights"], batch["masked_lm_positions"]
    assert weights.shape[1] == counts["max_predictions"] <= 5
    # A tenth of the masked tokens stay as they are, and are not found again.
    assert weights.sum() / counts["masked_tokens_in_records"] > 0.8
    rows, slots = np.nonzero(weights)
    is_masked = batch["input_ids"][rows, positions[rows, slots]] == 4
    assert is_masked.mean() > 0.8
