"""Trains and evaluates sentence embeddings (Sentence-BERT, arXiv 1908.10084); `losses.py` has the losses."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.data.reading import example_weights
from albert_tf.formats.weights import Weights
from albert_tf.model import device
from albert_tf.model.config import SENTENCE_EMBEDDING, AlbertConfig
from albert_tf.model.heads import AlbertForEmbedding, ModelWithHead, unit_length
from albert_tf.tasks.embedding import losses, vector_metrics
from albert_tf.tasks.embedding.settings import EmbeddingConfig
from albert_tf.tasks.embedding.source import EmbeddingSource
from albert_tf.tasks.finetuning import FineTuningTask, raw_file
from albert_tf.tasks.settings import FineTuningRunConfig
from albert_tf.tasks.start import Head
from albert_tf.training.losses import Ratio
from albert_tf.training.task import Features, Files, Metrics, Outputs, Predictions

_BEST_METRICS = {"retrieval": "ndcg_at_10", "scores": "spearman", "triplets": "triplet_accuracy"}
_ENTRIES_OF_LABELS = ("id2label", "label2id", "problem_type")


class EmbeddingHead(Head):
    """How a vector is made of hidden states; without a projection, that of any encoder can be used."""

    source: EmbeddingSource

    def is_in(self, weights: Weights) -> bool:
        """Whether a model needs no new projection."""
        size = 0
        if weights.model_class == AlbertForEmbedding.__name__:
            size = weights.config.sentence_embedding["projection_size"]
        return self.source.config.projection_size == size

    def labels_of(self, weights: Weights) -> Sequence[str]:
        """None: a model's labels are those of another task."""
        del weights
        return ()

    def described(self, config: AlbertConfig, *, is_new: bool, is_trained: bool) -> AlbertConfig:
        """See `Head`; the modules of a model of others stay, unless the projection after them is new."""
        config = super().described(config, is_new=is_new, is_trained=is_trained)
        how = {**config.sentence_embedding, **self.source.config.sentence_embedding}
        if is_trained:
            how["similarity"] = SENTENCE_EMBEDDING["similarity"]  # that of the losses
        if is_new:
            how["modules"] = SENTENCE_EMBEDDING["modules"]
        foreign = {
            name: value for name, value in config.foreign.items() if name not in _ENTRIES_OF_LABELS
        }
        return config.replace(foreign={**foreign, "sentence_embedding": how})


class EmbeddingTask(FineTuningTask):
    """Vectors of texts; for the arguments see `FineTuningTask`."""

    model_class = AlbertForEmbedding
    source_class = EmbeddingSource
    head_class = EmbeddingHead
    source: EmbeddingSource
    config: EmbeddingConfig

    def __init__(self, config: EmbeddingConfig, run: FineTuningRunConfig):
        super().__init__(config, run)
        self.compares_examples = config.row_of_loss.compares_examples
        self.best_metric = _BEST_METRICS[config.kind_of_evaluation]
        width = self.model_config.vector_size
        largest = max(config.matryoshka_weights, default=0)
        if largest > width:
            config.refuse("matryoshka_dims", f"has {largest}, but vectors have {width} values")
        # A tensor, because a graph cannot contain large arrays.
        self._positive_pairs: tf.Tensor | None = None
        if "train" in self.tables:
            text_ids = self.tables["train"].columns["text_ids"].astype(np.int64)
            pairs = np.unique(np.concatenate(losses.pair_keys(text_ids)))
            self._positive_pairs = tf.constant(pairs)

    def build_model(self, **options: Any) -> ModelWithHead:
        """See `FineTuningTask`; the padding of each column of texts is cut where no compiler forbids it."""
        model = super().build_model(**options)
        model.cuts_padding = device.target_device() == "CPU" and self.run.jit_compile != "on"
        return model

    def save_model(self, model: ModelWithHead, folder: str, history: Mapping[str, Mapping]) -> None:
        """See `FineTuningTask`; the model card says to how many values the vectors may be cut."""
        if self.config.matryoshka_weights:
            sizes = ", ".join(map(str, sorted(self.config.matryoshka_weights)))
            history = {"Vectors": {"may be cut to their first values": sizes}, **history}
        super().save_model(model, folder, history)

    def loss_counts(self, features: Features) -> Mapping[str, tf.Tensor]:
        """The number of examples."""
        return {"embedding_loss": tf.reduce_sum(example_weights(features))}

    def losses(self, outputs: Outputs, features: Features, training: bool) -> Mapping[str, Ratio]:
        """The loss of --loss in training; none in evaluations, whose data may be of another kind.

        With --matryoshka_dims, it is the mean of the losses of cut vectors. infonce and cosent compare the texts of all
        devices and micro-batches.
        """
        if not training:
            return {}
        vectors_BCD = outputs["embedding"]
        weights = self.config.matryoshka_weights
        if not weights:
            return {"embedding_loss": self._loss_of(vectors_BCD, features)}

        ratios = {}
        for size in weights:
            ratios[size] = self._loss_of(vectors_BCD[..., :size], features)
        return {"embedding_loss": losses.matryoshka(ratios, weights)}

    def _loss_of(self, vectors_BCD: tf.Tensor, features: Features) -> Ratio:
        """The loss of --loss of vectors, which need not have length 1."""
        batch = losses.Batch(
            vectors_BCD=unit_length(vectors_BCD),
            features=features,
            config=self.config,
            positive_pairs=self._positive_pairs,
        )
        return self.config.row_of_loss.compute(batch)

    def predictions(self, outputs: Outputs, features: Features) -> Mapping[str, tf.Tensor]:
        """The vectors, [B, D] or [B, C, D]."""
        return {"embeddings": outputs["embedding"]}

    def evaluate(self, predictions: Predictions) -> Metrics:
        """Correlations with scores, accuracy on triplets, or metrics of retrieval."""
        vectors = predictions["embeddings"]
        kind = self.config.kind_of_evaluation
        if kind == "retrieval":
            return self._retrieval(vectors)
        if kind == "triplets":
            return {"triplet_accuracy": vector_metrics.triplet_accuracy(vectors)}
        return vector_metrics.correlations(vectors, self.column("eval", "label_scores"))

    def _retrieval(self, vectors_XD: np.ndarray) -> Metrics:
        """The metrics of searching with the first vectors, of the queries, among the others.

        They are undefined if a vector is not finite: it has no place in an order.
        """
        if not np.all(np.isfinite(vectors_XD)):
            return dict.fromkeys(vector_metrics.RETRIEVAL_METRICS)
        vectors_XD = vector_metrics.unit_length(vectors_XD)
        num_queries = len(self.source.relevant)
        queries = vectors_XD[:num_queries]
        corpus = vectors_XD[num_queries:]

        # A query would find its own text first, which nobody searches, so one more is found.
        most = max(vector_metrics.CUTOFFS)
        nearest, _ = vector_metrics.nearest(queries, corpus, most + 1)
        without_own = [
            texts[texts != own_text][:most]
            for texts, own_text in zip(nearest, self.source.own_texts, strict=True)
        ]
        return vector_metrics.retrieval(without_own, self.source.relevant)

    def evaluation_files(self, predictions: Predictions) -> Files:
        """The vectors, in the order of the texts."""
        return raw_file(predictions, "eval")

    def prediction_files(self, predictions: Predictions) -> Files:
        """The vectors of the texts, beside the rows of their file, and the raw predictions."""
        vectors = predictions["embeddings"]
        answers = [{"embedding": row} for row in vectors.reshape(len(vectors), -1).tolist()]
        return self.answer_files(answers, predictions)
