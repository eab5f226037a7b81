"""The published model: weights of the run in bfloat16, with checksums, and its results on the card."""

import json

import numpy as np

from albert_tf import AlbertConfig, AlbertForPreTraining, load_pretrained, save_pretrained
from lab.small_en import model
from tests.helpers import ROOT

CONFIG = AlbertConfig(
    vocab_size=6000, embedding_size=6, hidden_size=8, num_hidden_layers=3, num_hidden_groups=3,
    num_attention_heads=2, intermediate_size=10, max_position_embeddings=12,
)  # fmt: skip


def test_the_model_of_a_run_is_written_rounded_and_with_its_results(tmp_path):
    run, output = tmp_path / "run", tmp_path / "out" / "small"
    trained = AlbertForPreTraining(CONFIG)
    vocabulary = ROOT / "models/albert-tiny-docs/spiece.model"
    save_pretrained(trained, str(run / "model"), spm_model_file=str(vocabulary))
    results = {"eval": {"masked_lm_accuracy": 0.2812}, "majority": {"masked_lm_accuracy": 0.0572}}
    (run / "results.json").write_text(json.dumps(results))
    model.main(model.ModelSettings(run_dir=str(run), output_dir=str(output), max_seq_length=7))
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (run / "model", output)]
    assert sizes[1] < 0.6 * sizes[0]
    read = load_pretrained(str(output)).named_variables()  # which also verifies the checksums
    for name, variable in trained.named_variables().items():
        kept = variable.numpy()[:7] if name.endswith("position_embeddings") else variable.numpy()
        np.testing.assert_allclose(read[name].numpy(), kept, rtol=2**-8, err_msg=name)
        assert not (read[name].numpy().view(np.uint32) & 0xFFFF).any(), name
    assert (
        "| masked_lm_accuracy | 0.2812 (majority class 0.0572) |"
        in (output / "README.md").read_text()
    )
