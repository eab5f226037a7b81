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
_HEADS = ("cls/predictions/", "cls/seq_relationship/")  # of pretraining; others are kept
# Of the least-squares fit.
_SAMPLES = 40_000  # tokens
_MOST_POSITIONS = 64
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
    layers = matched_layers(config.num_hidden_layers, weights.config.num_hidden_layers)
    sources = [max(1, layer) - 1 for layer in layers[1:]]
    folded = arranged(weights, config, sources, _ONE_OF[layers_from])
    replaced = (_EMBEDDINGS, _PROJECTION, *_HEADS)
    arrays = {name: array for name, array in folded.arrays.items() if not name.startswith(replaced)}
    embeddings, explained = _folded_embeddings(weights, config, frequencies, seed)
    return dataclasses.replace(folded, arrays={**arrays, **embeddings}), explained


def relative_error(vectors_XD: np.ndarray, targets_XD: np.ndarray) -> float:
    """The squared error of vectors, divided by the variance of their targets."""
    error = np.sum((vectors_XD - targets_XD) ** 2)
    return float(error / np.sum((targets_XD - targets_XD.mean(axis=0)) ** 2))


def _folded_embeddings(
    weights: Weights, config: AlbertConfig, frequencies: np.ndarray | None, seed: int
) -> tuple[dict[str, np.ndarray], float]:
    """The embeddings and the projection of the student, and the share of the variance that they explain."""
    if config.embedding_size == weights.config.embedding_size:
        kept = {
            name: array
            for name, array in weights.arrays.items()
            if name.startswith((_EMBEDDINGS, _PROJECTION))
        }
        return kept, 1.0

    words_VE = weights.arrays[_EMBEDDINGS + "word_embeddings"]
    if frequencies is None:
        frequencies = 1.0 / (_ZIPF_OFFSET + np.arange(len(words_VE)))
    share_V = (frequencies + 1e-9) / np.sum(frequencies + 1e-9)

    arrays = _folded_tables(weights, config.embedding_size, share_V)
    kernel, bias, explained = _fitted_projection(weights, config, arrays, share_V, seed)
    arrays[_PROJECTION + "kernel"] = kernel
    arrays[_PROJECTION + "bias"] = bias
    return arrays, explained


def _folded_tables(
    weights: Weights, embedding_size: int, share_V: np.ndarray
) -> dict[str, np.ndarray]:
    """The tables of the student's embeddings, with a LayerNorm that changes nothing but the scale.

    Args:
      embedding_size: the width O of the student's embeddings; E is the teacher's.
      share_V: how often each token occurs, as its share of all tokens.
    """
    words_VE, types_TE, positions_LE = (weights.arrays[_EMBEDDINGS + name] for name in _TABLES)
    mean_position_E = positions_LE[:_MOST_POSITIONS].mean(0)

    # What the teacher's first layer sees of each token at a usual position: [30000, 768].
    normal_VE, scale_V1 = _normed(weights, words_VE + types_TE[0] + mean_position_E)
    center_E = share_V @ normal_VE

    # The O directions in which these vectors differ most: [768, 128]. With the root of a token's weight, frequent
    # tokens count more than rare ones, but do not outweigh them.
    weighted_VE = (normal_VE - center_E) * share_V[:, None] ** 0.25
    _, _, components_EE = np.linalg.svd(weighted_VE, full_matrices=False)
    base_EO = components_EE[:embedding_size].T.astype(np.float32)

    # Positions and segments are added before the teacher's LayerNorm, which scales them as it scales a usual token.
    gamma_E = weights.arrays[_EMBEDDINGS + "LayerNorm/gamma"] / np.median(scale_V1)
    tables = {
        "word_embeddings": (normal_VE - center_E) @ base_EO,
        "token_type_embeddings": (types_TE - types_TE[0]) * gamma_E @ base_EO,
        "position_embeddings": (positions_LE - mean_position_E) * gamma_E @ base_EO,
    }
    arrays = {_EMBEDDINGS + name: table.astype(np.float32) for name, table in tables.items()}
    arrays[_EMBEDDINGS + "LayerNorm/gamma"] = np.ones(embedding_size, np.float32)
    arrays[_EMBEDDINGS + "LayerNorm/beta"] = np.zeros(embedding_size, np.float32)
    return arrays


def _fitted_projection(
    weights: Weights,
    config: AlbertConfig,
    arrays: Mapping[str, np.ndarray],
    share_V: np.ndarray,
    seed: int,
) -> tuple[np.ndarray, np.ndarray, float]:
    """The kernel [O, D] and bias [D] that best give the inputs of the teacher's first layer, and the share explained.

    Args:
      arrays: the tables of the student's embeddings.
      share_V: how often each token is drawn.
    """
    rng = np.random.default_rng(seed)
    ids_X = rng.choice(len(share_V), _SAMPLES, p=share_V)
    num_positions = len(weights.arrays[_EMBEDDINGS + "position_embeddings"])
    places_X = rng.integers(min(_MOST_POSITIONS, num_positions), size=_SAMPLES)

    student = dataclasses.replace(weights, arrays=arrays, config=config)
    inputs_XO, _ = _normed(student, _sums(arrays, ids_X, places_X))
    targets_XD = first_inputs(weights, ids_X, places_X)
    solution, explained = _least_squares(inputs_XO, targets_XD)
    return solution[:-1].astype(np.float32), solution[-1].astype(np.float32), explained


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
