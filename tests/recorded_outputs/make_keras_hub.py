"""Writes keras_hub.zip: presets that keras-hub saved from random weights, and what keras-hub computes with them.

    KERAS_BACKEND=tensorflow python tests/recorded_outputs/make_keras_hub.py tests/recorded_outputs/keras_hub.zip

needs keras-hub (the extra `peers`). test_keras_hub.py reads the file, and where keras-hub is installed a fresh one.
"""

import pathlib
import sys
import tempfile
import zipfile

import keras_hub
import numpy as np

# All sizes differ, batch 5 and length 11 too.
SIZES = {
    "vocabulary_size": 23,
    "num_layers": 6,
    "num_heads": 4,
    "hidden_dim": 20,
    "intermediate_dim": 19,
    "max_sequence_length": 17,
    "num_segments": 2,
    "dropout": 0.1,
}
BATCH, LENGTH, PREDICTIONS = 5, 11, 8


def random_model(rng: np.random.Generator, **sizes) -> keras_hub.models.AlbertBackbone:
    """A backbone whose weights are large enough that every one of them shows in the outputs."""
    model = keras_hub.models.AlbertBackbone(**{**SIZES, "embedding_dim": 7, **sizes})
    randomize(model, rng)
    return model


def randomize(model, rng: np.random.Generator) -> None:
    """Draws all weights anew; those of LayerNorms around 1. Few digits make a small file."""
    for weight in model.trainable_weights:
        values = rng.normal(float("gamma" in weight.path), 0.3, weight.shape)
        weight.assign(np.round(values * 64) / 64)


def main(path: str) -> None:
    """Writes the file."""
    rng = np.random.default_rng(8)
    lengths = np.array([11, 5, 3, 9, 1])
    inputs = {
        "token_ids": rng.integers(0, SIZES["vocabulary_size"], (BATCH, LENGTH)),
        "padding_mask": (np.arange(LENGTH) < lengths[:, None]).astype(np.int32),
        "segment_ids": rng.integers(0, SIZES["num_segments"], (BATCH, LENGTH)),
    }
    positions = {"mask_positions": rng.integers(0, LENGTH, (BATCH, PREDICTIONS))}
    groups = random_model(rng, num_groups=2, num_inner_repetitions=3)
    same_width = random_model(rng, embedding_dim=20)
    same_width.get_layer("embedding_projection").set_weights([np.eye(20), np.zeros(20)])
    half = random_model(rng, dtype="bfloat16")
    backbone = random_model(rng)
    classifier = keras_hub.models.AlbertTextClassifier(backbone, num_classes=3, dropout=0.3)
    masked_lm = keras_hub.models.AlbertMaskedLM(backbone)
    randomize(classifier.output_dense, rng)
    randomize(masked_lm.masked_lm_head, rng)
    models = {
        "groups": groups,
        "same_width": same_width,
        "half": half,
        "classifier": classifier,
        "masked_lm": masked_lm,
    }
    outputs = inputs | positions
    for name in ("groups", "same_width"):
        for output, value in models[name](inputs).items():
            outputs[f"{name}/{output}"] = np.array(value)
    outputs["half/pooled_kernel"] = half.pooled_dense.get_weights()[0].astype(np.float32)
    outputs["classifier/logits"] = np.array(classifier(inputs))
    outputs["masked_lm/logits"] = np.array(masked_lm(inputs | positions))
    with tempfile.TemporaryDirectory() as folder:
        for name, model in models.items():
            model.save_to_preset(f"{folder}/{name}")
        np.savez(f"{folder}/outputs.npz", **outputs)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
            for file in sorted(pathlib.Path(folder).rglob("*.*")):
                # One time for all, so that the same weights make the same file.
                info = zipfile.ZipInfo(file.relative_to(folder).as_posix())
                info.compress_type = zipfile.ZIP_LZMA
                archive.writestr(info, file.read_bytes())


if __name__ == "__main__":
    main(*sys.argv[1:])
