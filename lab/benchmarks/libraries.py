"""Other libraries: the modules that each needs, its model of a size, and its inputs under its own names.

The functions import the libraries that they use, so that listing the names needs none of them.
"""

from collections.abc import Callable, Mapping

import numpy as np

from albert_tf.core.workers import num_cores
from albert_tf.model.config import AlbertConfig

# Name of a library -> the modules that it needs.
NEEDS: Mapping[str, tuple[str, ...]] = {
    "ours": (),
    "model_garden": ("official",),
    "transformers": ("torch", "transformers"),
    "keras_hub": ("keras_hub",),
}


# --- TF Model Garden ---


def gelu(tensor):
    """ALBERT's activation, as the Garden builds it from "gelu"."""
    import tf_keras

    return tf_keras.activations.gelu(tensor, approximate=True)


def model_garden_encoder(config: AlbertConfig):
    """TF Model Garden's encoder of a size."""
    from official.nlp.modeling import networks

    return networks.AlbertEncoder(
        vocab_size=config.vocab_size,
        embedding_width=config.embedding_size,
        hidden_size=config.hidden_size,
        num_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        max_sequence_length=config.max_position_embeddings,
        type_vocab_size=config.type_vocab_size,
        intermediate_size=config.intermediate_size,
        activation=gelu,
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        dict_outputs=True,
    )


def model_garden_inputs(features: Mapping) -> dict:
    """The inputs of the encoder."""
    return _renamed(features, ("input_word_ids", "input_mask", "input_type_ids"))


# --- transformers ---


def transformers_config(config: AlbertConfig):
    """transformers' configuration of a size."""
    import transformers

    sizes = {**config.to_dict(), "hidden_act": "gelu_new"}
    del sizes["share_parameters"]
    return transformers.AlbertConfig(**sizes)


def transformers_inputs(features: Mapping[str, np.ndarray]) -> dict:
    """The inputs of its encoder, as tensors."""
    named = _renamed(features, ("input_ids", "attention_mask", "token_type_ids"))
    return {name: torch_integers(value) for name, value in named.items()}


def torch_integers(array: np.ndarray):
    """An int64 tensor, PyTorch's type of indices and labels."""
    import torch

    return torch.from_numpy(array.astype(np.int64))


def transformers_training(
    class_name: str, config: AlbertConfig, *, learning_rate: float, precision: str = "float32"
) -> Callable[[Mapping], None]:
    """A function that trains one of transformers' models with PyTorch's AdamW and clipping to a global norm of 1."""
    import torch
    import transformers

    torch.set_num_threads(num_cores())
    torch.manual_seed(1)
    model = getattr(transformers, class_name)(transformers_config(config)).train()
    optimizer = torch.optim.AdamW(model.parameters(), learning_rate, weight_decay=0.01)

    def train(inputs: Mapping) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            loss = model(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()

    return train


# --- keras-hub ---


def keras_hub_backbone(config: AlbertConfig, dtype: str):
    """keras-hub's encoder of a size."""
    import keras_hub

    return keras_hub.models.AlbertBackbone(
        vocabulary_size=config.vocab_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        embedding_dim=config.embedding_size,
        hidden_dim=config.hidden_size,
        intermediate_dim=config.intermediate_size,
        max_sequence_length=config.max_position_embeddings,
        dtype=dtype,
    )


def keras_hub_inputs(features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inputs of the encoder."""
    return _renamed(features, ("token_ids", "padding_mask", "segment_ids"))


def _renamed(features: Mapping, names: tuple[str, str, str]) -> dict:
    """Ids, mask and segments, in this order, under other names."""
    ours = ("input_ids", "input_mask", "segment_ids")
    return {theirs: features[name] for theirs, name in zip(names, ours, strict=True)}
