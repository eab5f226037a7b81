"""The names of tensors in the models of transformers, and here."""

import itertools
from collections.abc import Mapping

from albert_tf.formats.weights import belongs_to_ffn, variables_of
from albert_tf.model.config import AlbertConfig
from albert_tf.model.head_names import ARCHITECTURES, USES_POOLER

# Our layer -> Hugging Face's layer. Their "kernel" matrices are transposed.
_BLOCK_LAYERS = {
    "attention_1/self/query": "attention.query",
    "attention_1/self/key": "attention.key",
    "attention_1/self/value": "attention.value",
    "attention_1/output/dense": "attention.dense",
    "LayerNorm": "attention.LayerNorm",
    "ffn_1/intermediate/dense": "ffn",
    "ffn_1/intermediate/output/dense": "ffn_output",
    "LayerNorm_1": "full_layer_layer_norm",
}
_LAYERS = {
    "bert/embeddings/LayerNorm": "albert.embeddings.LayerNorm",
    "bert/encoder/embedding_hidden_mapping_in": "albert.encoder.embedding_hidden_mapping_in",
    "bert/pooler/dense": "albert.pooler",
    "cls/predictions/transform/dense": "predictions.dense",
    "cls/predictions/transform/LayerNorm": "predictions.LayerNorm",
}


def _variables(layers: Mapping[str, str]) -> dict[str, str]:
    """Our name -> Hugging Face's name, for the two variables of each layer."""
    names = {}
    for ours, theirs in layers.items():
        # "bert/pooler/dense" -> its "kernel" and "bias"; a LayerNorm has "gamma" and "beta".
        our_weight, our_bias = variables_of(ours)
        names[f"{ours}/{our_weight}"] = f"{theirs}.weight"
        names[f"{ours}/{our_bias}"] = f"{theirs}.bias"
    return names


_BLOCK_NAMES = _variables(_BLOCK_LAYERS)
WORD_TABLE = "albert.embeddings.word_embeddings.weight"
_NAMES = {
    "bert/embeddings/word_embeddings": WORD_TABLE,
    "bert/embeddings/token_type_embeddings": "albert.embeddings.token_type_embeddings.weight",
    "bert/embeddings/position_embeddings": "albert.embeddings.position_embeddings.weight",
    **_variables(_LAYERS),
    "cls/predictions/output_bias": "predictions.bias",
    "cls/seq_relationship/output_weights": "sop_classifier.classifier.weight",
    "cls/seq_relationship/output_bias": "sop_classifier.classifier.bias",
}
HEAD_NAMES = {
    "output_weights": "classifier.weight",
    "output_bias": "classifier.bias",
    "cls/squad/output_weights": "qa_outputs.weight",
    "cls/squad/output_bias": "qa_outputs.bias",
}
# Without values, it keeps a classifier of vectors from being read as their class, whose head would get random ones: the
# shape is wrong, which is an error there. Their other classes ignore it.
NO_HEAD = "classifier.weight"
# Prefix of tensors that the model of transformers does not have.
OUR_PREFIX = "albert_tf."
PROJECTION = _LAYERS["bert/encoder/embedding_hidden_mapping_in"]
# Classes of transformers that have no pooler; an AlbertModel may lack it, too.
NO_POOLER = {
    "AlbertForMaskedLM",
    *(ARCHITECTURES[name] for name, uses_pooler in USES_POOLER.items() if not uses_pooler),
} - {""}
# Constants that old versions of transformers saved together with the parameters.
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")


def groups_of_layers(config: AlbertConfig) -> list[int]:
    """The group of each layer in the equivalent Hugging Face model: ours, or one per layer if its rule differs."""
    layers = range(config.num_hidden_layers)
    attention_groups = [config.attention_group_of_layer(layer) for layer in layers]
    ffn_groups = [config.ffn_group_of_layer(layer) for layer in layers]

    # Their rule: 4 layers in 2 groups -> [0, 0, 1, 1].
    layers_per_group = config.num_hidden_layers / config.num_hidden_groups
    their_groups = [int(layer / layers_per_group) for layer in layers]

    if attention_groups == their_groups and ffn_groups == their_groups:
        return their_groups
    return list(layers)


def released_names(config: AlbertConfig) -> dict[str, str]:
    """Hugging Face name -> released name, for every tensor of their model with this configuration."""
    names = {theirs: ours for ours, theirs in (_NAMES | HEAD_NAMES).items()}
    for layer, their_group in enumerate(groups_of_layers(config)):
        attention_group = config.attention_group_of_layer(layer)
        ffn_group = config.ffn_group_of_layer(layer)
        for inner, ours in itertools.product(range(config.inner_group_num), _BLOCK_NAMES):
            our_group = ffn_group if belongs_to_ffn("/" + ours) else attention_group
            our_layer = f"bert/encoder/transformer/group_{our_group}/inner_group_{inner}"
            their_layer = f"albert.encoder.albert_layer_groups.{their_group}.albert_layers.{inner}"
            # The first layer of each of their groups determines which of our copies the group uses.
            names.setdefault(f"{their_layer}.{_BLOCK_NAMES[ours]}", f"{our_layer}/{ours}")
    return names


def current_name(name: str) -> str:
    """Example: "embeddings.LayerNorm.gamma" -> "albert.embeddings.LayerNorm.weight"."""
    if name.startswith(("embeddings.", "encoder.", "pooler.")):  # a saved AlbertModel
        name = f"albert.{name}"
    if "LayerNorm" in name or "layer_norm" in name:
        name = name.replace(".gamma", ".weight").replace(".beta", ".bias")
    return name
