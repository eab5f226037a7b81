"""Hugging Face folders: `config.json`, `model.safetensors` or `pytorch_model.bin`, vocabulary, tokenizer files."""

from albert_tf.formats.hugging_face.read import (
    describe,
    read,
    read_without_arrays,
    recognizes,
)

__all__ = ["describe", "read", "read_without_arrays", "recognizes"]
