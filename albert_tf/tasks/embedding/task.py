"""Trains and evaluates sentence embeddings (Sentence-BERT, arXiv 1908.10084; InfoNCE, 1807.03748; CoSENT)."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from albert_tf.data.reading import example_weights
from albert_tf.model import device
from albert_tf.model.config import SENTENCE_EMBEDDING, AlbertConfig
from albert_tf.model.heads import AlbertForEmbedding, unit_length
from albert_tf.tasks.embedding import vector_metrics
from albert_tf.tasks.embedding.settings import EmbeddingConfig
from albert_tf.tasks.embedding.source import EmbeddingSource
from albert_tf.tasks.finetuning import FineTuningTask
from albert_tf.tasks.settings import FineTuningRunConfig
from albert_tf.training.losses import Ratio, squared_error
from albert_tf.training.task import Features, Files, Metrics, Outputs, Predictions

_BEST_METRICS = {"retrieval": "ndcg_at_10", "scores": "spearman", "triplets": "triplet_accuracy"}
_NEVER = -1e9  # added to the score of a text that must not be chosen
_MOST_TEXTS = 2**31  # text ids are smaller


class EmbeddingTask(FineTuningTask):
    """Vectors of texts; for the arguments see `FineTuningTask`."""

    model_class = AlbertForEmbedding
    source_class = EmbeddingSource
    source: EmbeddingSource
    config: EmbeddingConfig

    def __init__(self, config: EmbeddingConfig, run: FineTuningRunConfig):
        super().__init__(config, run)
        self.compares_examples = config.loss in ("infonce", "cosent")
        self.best_metric = _BEST_METRICS[config.kind_of_evaluation]
        # Sorted `pair_keys` of the training data; a tensor, because a graph cannot contain large arrays.
        self._known = None
        if "train" in self.tables:
            text_ids = self.tables["train"].columns["text_ids"].astype(np.int64)
            self._known = tf.constant(np.unique(np.concatenate(pair_keys(text_ids))))

    def _has_head(self) -> bool:
        """Whether the weights need no new projection; without a projection, any encoder embeds."""
        if not self._weights:
            return False
        size = self._weights.config.sentence_embedding["projection_size"]
        is_own = self._weights.model_class == AlbertForEmbedding.__name__
        return self.config.projection_size == (size if is_own else 0)

    def _resolve_config(self) -> AlbertConfig:
        if self._weights:
            # The head of another task is left out; one of this task has the same projection, or is left out, too.
            is_own = self._weights.model_class == AlbertForEmbedding.__name__
            weights = self._weights if is_own and self._has_head() else self._weights.without_head()
            self._weights = weights
        config = super()._resolve_config()
        how = {**config.sentence_embedding, **self.config.sentence_embedding}
        if self.run.do_train:
            how["similarity"] = SENTENCE_EMBEDDING["similarity"]  # that of the losses
        if not self._has_head():
            how["modules"] = SENTENCE_EMBEDDING["modules"]
        labels = ("id2label", "label2id", "problem_type")
        foreign = {name: value for name, value in config.foreign.items() if name not in labels}
        return config.replace(foreign={**foreign, "sentence_embedding": how})

    def build_model(self, **settings):
        model = super().build_model(**settings)
        model.cuts_padding = device.target_device() == "CPU" and self.run.jit_compile != "on"
        return model

    def loss_counts(self, features: Features) -> Mapping[str, tf.Tensor]:
        """The number of examples."""
        return {"embedding_loss": tf.reduce_sum(example_weights(features))}

    def losses(self, outputs: Outputs, features: Features) -> Mapping[str, Ratio]:
        """The loss of --loss in training; none in evaluations, whose data may be of another kind.

        infonce and cosent compare the texts of all devices and micro-batches.
        """
        if "text_ids" not in features:
            return {}
        vectors_BCD, weights_B = unit_length(outputs["embedding"]), example_weights(features)
        if self.config.loss == "infonce":
            return {"embedding_loss": self._infonce(vectors_BCD, features["text_ids"])}
        cosines_BC = tf.einsum("BD,BCD->BC", vectors_BCD[:, 0], vectors_BCD[:, 1:])
        if self.config.loss == "triplet":
            lacking = tf.nn.relu(self.config.margin - cosines_BC[:, 0] + cosines_BC[:, 1])
            loss = Ratio(tf.reduce_sum(lacking * weights_B), tf.reduce_sum(weights_B))
            return {"embedding_loss": loss}
        scores_B = features["label_scores"][:, 0]
        if self.config.loss == "cosine":
            targets_B = scores_B / self.config.max_score
            return {"embedding_loss": squared_error(cosines_BC[:, 0], targets_B, weights_B)}
        # The device among the others; None if the losses are only named.
        context = tf.distribute.get_replica_context()
        return {"embedding_loss": cosent(cosines_BC[:, 0], scores_B, self.config.scale, context)}

    def _infonce(self, vectors_BCD, text_ids_BC) -> Ratio:
        """Cross entropy of the positive among the positives and negatives of all examples of the batch.

        A known positive of an anchor, the anchor's own text, and copies of them are never among its negatives.
        """
        context = tf.distribute.get_replica_context()
        ids_XC = tf.cast(over_devices(text_ids_BC, context), tf.int64)
        texts_XCD = over_devices(vectors_BCD, context)[:, 1:]
        # The candidates: first the positives of all examples, then their negatives.
        candidates_M = tf.reshape(tf.transpose(ids_XC[:, 1:]), [-1])
        texts_MD = tf.reshape(tf.transpose(texts_XCD, [1, 0, 2]), [-1, texts_XCD.shape[-1]])
        logits_BM = self.config.scale * tf.matmul(vectors_BCD[:, 0], texts_MD, transpose_b=True)
        keys_BM = _key(tf.cast(text_ids_BC[:, :1], tf.int64), candidates_M)
        place_X = tf.searchsorted(self._known, tf.reshape(keys_BM, [-1]))
        place_BM = tf.reshape(tf.minimum(place_X, tf.size(self._known) - 1), tf.shape(keys_BM))
        is_known_BM = tf.gather(self._known, place_BM) == keys_BM
        batch = tf.shape(text_ids_BC)[0]
        own_B = tf.range(batch) + (context.replica_id_in_sync_group * batch if context else 0)
        is_own_BM = tf.range(tf.size(candidates_M)) == own_B[:, None]
        logits_BM += _NEVER * tf.cast(is_known_BM & ~is_own_BM, tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=own_B, logits=logits_BM)
        return Ratio(tf.reduce_sum(losses), tf.cast(batch, tf.float32))

    def predictions(self, outputs: Outputs, features: Features) -> Mapping[str, tf.Tensor]:
        """The vectors, [B, D] or [B, C, D]."""
        return {"embeddings": outputs["embedding"]}

    def evaluate(self, predictions: Predictions) -> Metrics:
        """Correlations with scores, accuracy on triplets, or metrics of retrieval."""
        vectors = predictions["embeddings"]
        if self.config.kind_of_evaluation == "retrieval":
            number = len(self.source.relevant)
            vectors = vector_metrics.unit_length(vectors)
            most = max(vector_metrics.CUTOFFS)
            found, _ = vector_metrics.nearest(vectors[:number], vectors[number:], most + 1)
            # A query would find its own text first, which nobody searches.
            own = zip(found, self.source.own_texts, strict=True)
            rows = [row[row != text][:most] for row, text in own]
            return vector_metrics.retrieval(rows, self.source.relevant)
        if self.config.kind_of_evaluation == "triplets":
            return {"triplet_accuracy": vector_metrics.triplet_accuracy(vectors)}
        return vector_metrics.correlations(vectors, self._column("eval", "label_scores"))

    def evaluation_files(self, predictions: Predictions) -> Files:
        """The vectors, in the order of the texts."""
        return self._raw_file(predictions, "eval")

    def prediction_files(self, predictions: Predictions) -> Files:
        """The vectors of the texts, beside the rows of their file, and the raw predictions."""
        vectors = predictions["embeddings"]
        answers = [{"embedding": row} for row in vectors.reshape(len(vectors), -1).tolist()]
        return self._answer_files(answers, predictions)


def pair_keys(text_ids_XC) -> list:
    """Keys of the two texts of each positive pair, in both orders, and of each anchor with itself; int64 [X] each."""
    first, second = text_ids_XC[:, 0], text_ids_XC[:, 1]
    return [_key(first, second), _key(second, first), _key(first, first)]


def _key(first, second):
    """One int64 for two text ids."""
    return first * _MOST_TEXTS + second


def cosent(cosines_B, scores_B, scale: float, context) -> Ratio:
    """log(1 + the sum of exp(scale (cos_i - cos_j)) over all pairs of examples with score_i < score_j).

    Every device computes the loss of the whole batch; their counts make its gradient count once.

    Source: Jianlin Su, "CoSENT" (https://kexue.fm/archives/8847).
    """
    cosines_X, scores_X = over_devices(cosines_B, context), over_devices(scores_B, context)
    differences_XX = scale * (cosines_X[:, None] - cosines_X)
    wrong_XX = tf.where(scores_X[:, None] < scores_X, differences_XX, _NEVER)
    loss = tf.reduce_logsumexp(tf.concat([[0.0], tf.reshape(wrong_XX, [-1])], axis=0))
    count = tf.cast(tf.size(cosines_B), tf.float32)
    return Ratio(loss * count, count)


def over_devices(tensor, context):
    """The parts [B, ...] of all devices, [devices x B, ...]: a sum of padded parts; XLA has no gather over devices."""
    number = context.num_replicas_in_sync if context else 1
    if number == 1:
        return tensor
    is_own = tf.range(number) == context.replica_id_in_sync_group
    shape = tf.concat([[number], tf.ones([tf.rank(tensor)], tf.int32)], axis=0)
    padded = tf.cast(tf.reshape(is_own, shape), tensor.dtype) * tensor[None]
    summed = context.all_reduce(tf.distribute.ReduceOp.SUM, padded)
    return tf.reshape(summed, tf.concat([[-1], tf.shape(tensor)[1:]], axis=0))
