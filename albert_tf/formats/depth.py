"""Weights for another number of layers, or for another sharing of parameters."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from albert_tf.core.errors import UserError
from albert_tf.formats.weights import Weights, belongs_to_ffn
from albert_tf.model.config import AlbertConfig

GROUP = "bert/encoder/transformer/group_"


def with_layers(weights: Weights, num_hidden_layers: int | None) -> Weights:
    """The first layers of a model; if all its layers share their parameters, also more layers than it has."""
    if num_hidden_layers in (None, weights.config.num_hidden_layers):
        return weights
    try:
        config = weights.config.with_layers(num_hidden_layers)
    except UserError as error:
        raise UserError(f"{weights.source}: {error}") from None
    last = weights.config.num_hidden_layers - 1
    return arranged(weights, config, [min(layer, last) for layer in range(num_hidden_layers)])


def fitted(weights: Weights, config: AlbertConfig) -> Weights:
    """The weights of a model that shares less: each layer gets a copy of the parameters that it had.

    A UserError if sizes differ, or layers with different values would have to share them.
    """
    sharing = ("share_parameters", "num_hidden_groups")
    check_same_sizes(weights, config, ignored=sharing)
    if all(getattr(config, name) == getattr(weights.config, name) for name in sharing):
        return weights
    if not config.shares_at_most(weights.config):
        check_same_sizes(weights, config)
    return arranged(weights, config, range(config.num_hidden_layers))


def stretched(weights: Weights, config: AlbertConfig) -> Weights:
    """The weights of a shallower model, copied to the groups of a deeper one.

    A model that shares all parameters only gets the new number of layers. Otherwise, a group gets the values of the
    source's group at the same relative depth (paper, footnote 5; original `init_from_group0`).
    """
    depth = ("num_hidden_layers", "num_hidden_groups")
    check_same_sizes(weights, config, ignored=depth)
    for field in depth:
        ours = getattr(config, field)
        theirs = getattr(weights.config, field)
        if theirs > ours:
            raise UserError(f"{weights.source}: {field} is {theirs}, more than the model's {ours}")
    num_layers = config.num_hidden_layers
    num_sources = weights.config.num_hidden_layers
    sources = [layer * num_sources // num_layers for layer in range(num_layers)]
    return arranged(weights, config, sources)


def arranged(
    weights: Weights,
    config: AlbertConfig,
    sources: Sequence[int],
    one_of: Callable[[list[np.ndarray]], np.ndarray] = lambda arrays: arrays[-1],
) -> Weights:
    """The weights for a configuration whose layers get the values of the source's layers with these numbers.

    `one_of` makes an array of those of all layers that share it.
    """
    source = weights.config
    layers = range(config.num_hidden_layers)
    arrays = {name: weights.arrays[name] for name in weights.arrays if not name.startswith(GROUP)}
    arrays |= _half_of_blocks(
        weights,
        [source.attention_group_of_layer(layer) for layer in sources],
        [config.attention_group_of_layer(layer) for layer in layers],
        one_of,
        is_ffn=False,
    )
    arrays |= _half_of_blocks(
        weights,
        [source.ffn_group_of_layer(layer) for layer in sources],
        [config.ffn_group_of_layer(layer) for layer in layers],
        one_of,
        is_ffn=True,
    )
    return dataclasses.replace(weights, config=config, arrays=arrays)


def _half_of_blocks(
    weights: Weights,
    groups_of_source: Sequence[int],
    groups: Sequence[int],
    one_of: Callable[[list[np.ndarray]], np.ndarray],
    *,
    is_ffn: bool,
) -> dict[str, np.ndarray]:
    """The arrays of the attention or of the feed-forward half of all blocks, by their new names.

    Args:
      groups_of_source: for each layer, the group of the source whose values it gets, as [0, 0, 1, 1].
      groups: for each layer, its group in the result, as [0, 0, 0, 0]: these four layers share `one_of` the values.
    """
    sources_of_group: dict[int, list[int]] = {}
    for group, group_of_source in zip(groups, groups_of_source, strict=True):
        sources_of_group.setdefault(group, []).append(group_of_source)

    arrays = {}
    for group, its_sources in sources_of_group.items():
        prefix = f"{GROUP}{its_sources[0]}/"
        for name in weights.arrays:
            if not name.startswith(prefix) or belongs_to_ffn(name) != is_ffn:
                continue
            part = name.removeprefix(prefix)
            shared = [weights.arrays[f"{GROUP}{number}/{part}"] for number in its_sources]
            arrays[f"{GROUP}{group}/{part}"] = one_of(shared)
    return arrays


def check_same_sizes(weights: Weights, config: AlbertConfig, ignored: tuple[str, ...] = ()) -> None:
    """Checks that configurations are equal but for dropout rates; shapes would not reveal a wrong number of heads."""
    free = {"foreign", "initializer_range", *ignored}
    for name in config.names():
        ours = getattr(config, name)
        theirs = getattr(weights.config, name)
        if name not in free and not name.endswith("dropout_prob") and ours != theirs:
            reason = f"its {name} is {theirs}, that of --model or --albert_config_file {ours}"
            raise UserError(f"{weights.source}: {reason}")
