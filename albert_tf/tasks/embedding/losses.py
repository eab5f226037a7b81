"""The losses of embeddings, which `loss_table.py` names: functions of a `Batch` that return a sum and its count.

Shape legend: B examples of this device, X examples of all devices, C texts in an example, D values in a vector, M
candidates of infonce.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from albert_tf.data.reading import example_weights
from albert_tf.tasks.embedding.settings import EmbeddingConfig
from albert_tf.training.losses import Ratio, squared_error
from albert_tf.training.task import Features

_NEVER = -1e9  # added to the score of a text that must not be chosen
_MOST_TEXTS = 2**31  # text ids are smaller


class Batch(NamedTuple):
    """What a loss is computed of."""

    vectors_BCD: tf.Tensor  # of length 1, float32
    features: (
        Features  # `text_ids` int [B, C] and, for losses of scores, `label_scores` float [B, 1]
    )
    config: EmbeddingConfig
    positive_pairs: tf.Tensor  # the sorted `pair_keys` of the training data, int64

    @property
    def weights_B(self) -> tf.Tensor:
        """1 for an example, float32."""
        return example_weights(self.features)

    @property
    def scores_B(self) -> tf.Tensor:
        """The score of each pair of texts."""
        return self.features["label_scores"][:, 0]

    def cosines(self) -> tf.Tensor:
        """The cosines of the first text with each of the others, [B, C - 1]."""
        return tf.einsum("BD,BCD->BC", self.vectors_BCD[:, 0], self.vectors_BCD[:, 1:])


def infonce(batch: Batch) -> Ratio:
    """Cross entropy of the positive among the positives and negatives of all examples of the batch.

    A known positive of an anchor, the anchor's own text, and copies of them are never among its negatives.

    Source: van den Oord et al., arXiv 1807.03748, section 2.3.
    """
    context = tf.distribute.get_replica_context()
    text_ids_BC = batch.features["text_ids"]
    ids_XC = tf.cast(over_devices(text_ids_BC, context), tf.int64)
    vectors_XCD = over_devices(batch.vectors_BCD, context)

    # 2 devices with 4 examples of 3 texts -> 16 candidates: the positives of all examples, then their negatives.
    candidates_M = tf.reshape(tf.transpose(ids_XC[:, 1:]), [-1])
    candidates_CXD = tf.transpose(vectors_XCD[:, 1:], [1, 0, 2])
    candidates_MD = tf.reshape(candidates_CXD, [-1, candidates_CXD.shape[-1]])
    anchors_BD = batch.vectors_BCD[:, 0]
    logits_BM = batch.config.scale * tf.matmul(anchors_BD, candidates_MD, transpose_b=True)

    # [4, 16]: whether anchor and candidate are a positive pair, by a search in the sorted list of pairs.
    keys_BM = _key(tf.cast(text_ids_BC[:, :1], tf.int64), candidates_M)
    last_place = tf.size(batch.positive_pairs) - 1
    places = tf.searchsorted(batch.positive_pairs, tf.reshape(keys_BM, [-1]))
    places_BM = tf.reshape(tf.minimum(places, last_place), tf.shape(keys_BM))
    is_positive_BM = tf.gather(batch.positive_pairs, places_BM) == keys_BM

    # [4]: the candidate that is the example's own positive; on the second device 4, 5, 6, 7.
    batch_size = tf.shape(text_ids_BC)[0]
    first_own = context.replica_id_in_sync_group * batch_size if context else 0
    own_B = tf.range(batch_size) + first_own
    is_own_BM = tf.range(tf.size(candidates_M)) == own_B[:, None]

    logits_BM += _NEVER * tf.cast(is_positive_BM & ~is_own_BM, tf.float32)
    losses_B = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=own_B, logits=logits_BM)
    return Ratio(tf.reduce_sum(losses_B), tf.cast(batch_size, tf.float32))


def cosine(batch: Batch) -> Ratio:
    """Squared difference of the cosine of two texts and their score divided by --max_score."""
    targets_B = batch.scores_B / batch.config.max_score
    return squared_error(batch.cosines()[:, 0], targets_B, batch.weights_B)


def cosent(batch: Batch) -> Ratio:
    """log(1 + the sum of exp(scale (cos_i - cos_j)) over all pairs of examples with score_i < score_j).

    Every device computes the loss of the whole batch; their counts make its gradient count once.

    Source: Jianlin Su, "CoSENT" (https://kexue.fm/archives/8847).
    """
    # The device among the others; None if the losses are only named.
    context = tf.distribute.get_replica_context()
    cosines_B = batch.cosines()[:, 0]
    cosines_X = over_devices(cosines_B, context)
    scores_X = over_devices(batch.scores_B, context)

    differences_XX = batch.config.scale * (cosines_X[:, None] - cosines_X)
    is_pair_XX = scores_X[:, None] < scores_X
    exponents_XX = tf.where(is_pair_XX, differences_XX, _NEVER)
    loss = tf.reduce_logsumexp(tf.concat([[0.0], tf.reshape(exponents_XX, [-1])], axis=0))
    count = tf.cast(tf.size(cosines_B), tf.float32)
    return Ratio(loss * count, count)


def triplet(batch: Batch) -> Ratio:
    """How much the cosine with the positive lacks to be --margin above that with the negative."""
    cosines_BC = batch.cosines()
    lacking_B = tf.nn.relu(batch.config.margin - cosines_BC[:, 0] + cosines_BC[:, 1])
    weights_B = batch.weights_B
    return Ratio(tf.reduce_sum(lacking_B * weights_B), tf.reduce_sum(weights_B))


def matryoshka(ratios: Mapping[int, Ratio], weights: Mapping[int, float]) -> Ratio:
    """Weighted mean of the losses of cut vectors; both arguments are by the number of values.

    A mean, where the paper has a sum: the loss and its gradient stay as large as those of whole vectors.

    Source: Kusupati et al., arXiv 2205.13147, section 3.
    """
    weighted_sums = [weights[size] * ratio.sum for size, ratio in ratios.items()]
    # Each size has the same examples, and so the same count.
    count = next(iter(ratios.values())).count
    return Ratio(tf.add_n(weighted_sums) / sum(weights.values()), count)


def pair_keys(text_ids_XC) -> list:
    """Keys of the two texts of each positive pair, in both orders, and of each anchor with itself; int64 [X] each."""
    anchors_X = text_ids_XC[:, 0]
    positives_X = text_ids_XC[:, 1]
    return [
        _key(anchors_X, positives_X),
        _key(positives_X, anchors_X),
        _key(anchors_X, anchors_X),
    ]


def _key(first, second):
    """One int64 for two text ids."""
    return first * _MOST_TEXTS + second


def over_devices(tensor: tf.Tensor, context: Any) -> tf.Tensor:
    """The parts [B, ...] of all devices, [devices x B, ...]: a sum of padded parts; XLA has no gather over devices."""
    number = context.num_replicas_in_sync if context else 1
    if number == 1:
        return tensor
    # On the second of 2 devices, [4, 7] -> [2, 4, 7]: zeros, then the part; summed, both parts.
    is_own = tf.range(number) == context.replica_id_in_sync_group
    shape = tf.concat([[number], tf.ones([tf.rank(tensor)], tf.int32)], axis=0)
    padded = tf.cast(tf.reshape(is_own, shape), tensor.dtype) * tensor[None]
    summed = context.all_reduce(tf.distribute.ReduceOp.SUM, padded)
    # [2, 4, 7] -> [8, 7]
    return tf.reshape(summed, tf.concat([[-1], tf.shape(tensor)[1:]], axis=0))
