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
        ours, theirs = getattr(config, field), getattr(weights.config, field)
        if theirs > ours:
            raise UserError(f"{weights.source}: {field} is {theirs}, more than the model's {ours}")
    num_layers, num_sources = config.num_hidden_layers, weights.config.num_hidden_layers
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
    arrays = {name: weights.arrays[name] for name in weights.arrays if not name.startswith(GROUP)}
    for kind in ("attention_group_of_layer", "ffn_group_of_layer"):
        sources_of_group: dict[int, list[int]] = {}
        for layer, source in enumerate(sources):
            source_group = getattr(weights.config, kind)(source)
            sources_of_group.setdefault(getattr(config, kind)(layer), []).append(source_group)
        for group, groups in sources_of_group.items():
            for name in weights.arrays:
                part = name.removeprefix(f"{GROUP}{groups[0]}/")
                if part != name and belongs_to_ffn(name) == (kind == "ffn_group_of_layer"):
                    shared = [weights.arrays[f"{GROUP}{number}/{part}"] for number in groups]
                    arrays[f"{GROUP}{group}/{part}"] = one_of(shared)
    return dataclasses.replace(weights, config=config, arrays=arrays)


def check_same_sizes(weights: Weights, config: AlbertConfig, ignored: tuple[str, ...] = ()) -> None:
    """Checks that configurations are equal but for dropout rates; shapes would not reveal a wrong number of heads."""
    free = {"foreign", "initializer_range", *ignored}
    for name in config.names():
        ours, theirs = getattr(config, name), getattr(weights.config, name)
        if name not in free and not name.endswith("dropout_prob") and ours != theirs:
            reason = f"its {name} is {theirs}, that of --model or --albert_config_file {ours}"
            raise UserError(f"{weights.source}: {reason}")
