"""Folds a trained encoder into a smaller ALBERT: factorized embeddings, and layers that share their parameters.

The result is an initial value, which distillation (`tasks/distillation`) repairs. NumPy alone computes it:

    embeddings     the E largest principal components of the teacher's normed word vectors; positions and segments are
                   mapped by the same matrix; the projection to D is a least-squares fit to the input of its first layer
    shared layers  each copy of the parameters is the mean, the middle or the first of the teacher's layers it replaces

Shape legend: `model/encoder.py`.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from albert_tf.formats.depth import arranged
from albert_tf.formats.weights import Weights
from albert_tf.model.config import AlbertConfig

# --layers_from -> the array that layers share, of the arrays of those that they replace.
_ONE_OF: Mapping[str, Callable[[list[np.ndarray]], np.ndarray]] = {
    "middle": lambda arrays: arrays[len(arrays) // 2],
    "first": lambda arrays: arrays[0],
    "mean": lambda arrays: np.mean(arrays, axis=0),
}
_TABLES = ("word_embeddings", "token_type_embeddings", "position_embeddings")
_EMBEDDINGS = "bert/embeddings/"
_PROJECTION = "bert/encoder/embedding_hidden_mapping_in/"
_HEADS = "cls/predictions/", "cls/seq_relationship/"  # of pretraining; others are kept
_SAMPLES, _MOST_POSITIONS = 40_000, 64  # tokens, and positions, of the least-squares fit
# Without text, the frequency of a token is that of Zipf's law by its id: vocabularies list frequent tokens first.
_ZIPF_OFFSET = 100.0


def matched_layers(num_student: int, num_teacher: int) -> list[int]:
    """The teacher's hidden states at the relative depths of the student's: matched_layers(3, 12) -> [0, 4, 8, 12].

    Halves are rounded up, so that gaps repeat evenly: matched_layers(4, 6) -> [0, 2, 3, 5, 6].
    """
    return [
        (2 * layer * num_teacher + num_student) // (2 * num_student)
        for layer in range(num_student + 1)
    ]


def layer_states(hidden_states: Sequence, config: AlbertConfig) -> Sequence:
    """Of the hidden states of an encoder, one for each block: the input of the first layer, and each layer's output."""
    return hidden_states[:: config.inner_group_num]


def fold(
    weights: Weights,
    config: AlbertConfig,
    *,
    layers_from: str = "middle",
    frequencies: np.ndarray | None = None,
    seed: int = 0,
) -> tuple[Weights, float]:
    """The weights of a smaller model, and the share of the variance of the first layer's inputs that it explains.

    Args:
      weights: the teacher, with one block in a layer.
      config: the sizes of the student, with the teacher's D, N, F and V.
      layers_from: which of the teacher's layers give a copy of the parameters its values: middle, mean, first.
      frequencies: float [V], how often each token occurs; None is Zipf's law by id.
    """
    depths = config.num_hidden_layers, weights.config.num_hidden_layers
    sources = [max(1, layer) - 1 for layer in matched_layers(*depths)[1:]]
    folded = arranged(weights, config, sources, _ONE_OF[layers_from])
    others = (_EMBEDDINGS, _PROJECTION, *_HEADS)
    arrays = {name: a for name, a in folded.arrays.items() if not name.startswith(others)}
    embeddings, explained = _folded_embeddings(weights, config, frequencies, seed)
    return dataclasses.replace(folded, arrays={**arrays, **embeddings}), explained


def relative_error(found: np.ndarray, wanted: np.ndarray) -> float:
    """The squared error of vectors [X, D], divided by the variance of those that are wanted."""
    return float(np.sum((found - wanted) ** 2) / np.sum((wanted - wanted.mean(axis=0)) ** 2))


def _folded_embeddings(
    weights: Weights, config: AlbertConfig, frequencies: np.ndarray | None, seed: int
) -> tuple[dict[str, np.ndarray], float]:
    """The embeddings and the projection of the student, and the share of the variance that they explain."""
    kept = {
        name: array
        for name, array in weights.arrays.items()
        if name.startswith((_EMBEDDINGS, _PROJECTION))
    }
    if config.embedding_size == weights.config.embedding_size:
        return kept, 1.0
    words, types, positions = (weights.arrays[_EMBEDDINGS + name] for name in _TABLES)
    if frequencies is None:
        frequencies = 1.0 / (_ZIPF_OFFSET + np.arange(len(words)))
    share_V = (frequencies + 1e-9) / np.sum(frequencies + 1e-9)
    normal_VE, scale_V1 = _normed(weights, words + types[0] + positions[:_MOST_POSITIONS].mean(0))
    center_E = share_V @ normal_VE
    weighted_VE = (normal_VE - center_E) * share_V[:, None] ** 0.25  # the root: rare tokens count
    _, _, components = np.linalg.svd(weighted_VE, full_matrices=False)
    base_EO = components[: config.embedding_size].T.astype(np.float32)
    gamma = weights.arrays[_EMBEDDINGS + "LayerNorm/gamma"] / np.median(scale_V1)
    positions_LO = (positions - positions[:_MOST_POSITIONS].mean(0)) * gamma @ base_EO
    tables = {
        "word_embeddings": (normal_VE - center_E) @ base_EO,
        "token_type_embeddings": (types - types[0]) * gamma @ base_EO,
        "position_embeddings": positions_LO,
    }
    arrays = {_EMBEDDINGS + name: table.astype(np.float32) for name, table in tables.items()}
    arrays[_EMBEDDINGS + "LayerNorm/gamma"] = np.ones(config.embedding_size, np.float32)
    arrays[_EMBEDDINGS + "LayerNorm/beta"] = np.zeros(config.embedding_size, np.float32)
    rng = np.random.default_rng(seed)
    ids = rng.choice(len(words), _SAMPLES, p=share_V)
    places = rng.integers(min(_MOST_POSITIONS, len(positions)), size=_SAMPLES)
    student = dataclasses.replace(weights, arrays=arrays, config=config)
    inputs, _ = _normed(student, _sums(arrays, ids, places))
    targets = first_inputs(weights, ids, places)
    solution, explained = _least_squares(inputs, targets)
    arrays[_PROJECTION + "kernel"] = solution[:-1].astype(np.float32)
    arrays[_PROJECTION + "bias"] = solution[-1].astype(np.float32)
    return arrays, explained


def first_inputs(weights: Weights, ids: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The inputs of the first layer, [X, D], for tokens with these ids at these positions, in the first segment."""
    normed, _ = _normed(weights, _sums(weights.arrays, ids, places))
    if _PROJECTION + "kernel" not in weights.arrays:
        return normed
    return normed @ weights.arrays[_PROJECTION + "kernel"] + weights.arrays[_PROJECTION + "bias"]


def _sums(arrays, ids: np.ndarray, places: np.ndarray) -> np.ndarray:
    words, types, positions = (arrays[_EMBEDDINGS + name] for name in _TABLES)
    return words[ids] + types[0] + positions[places]


def _normed(weights: Weights, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """LayerNorm of embeddings [X, E], and the standard deviations [X, 1]."""
    gamma, beta = (weights.arrays[f"{_EMBEDDINGS}LayerNorm/{name}"] for name in ("gamma", "beta"))
    centered = sums - sums.mean(axis=1, keepdims=True)
    scale = np.sqrt(np.mean(centered**2, axis=1, keepdims=True) + weights.config.layer_norm_eps)
    return centered / scale * gamma + beta, scale


def _least_squares(inputs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, float]:
    """The kernel with the bias as its last row, and the share of the targets' variance that it explains."""
    with_one = np.concatenate([inputs, np.ones([len(inputs), 1])], axis=1)
    # Outputs of LayerNorm sum to 0 but for rounding, so one direction of the kernel is free: it must be 0.
    solution = np.linalg.lstsq(with_one, targets, rcond=1e-5)[0]
    error = np.sum((with_one @ solution - targets) ** 2)
    return solution, float(1 - error / np.sum((targets - targets.mean(axis=0)) ** 2))
