"""Settings of sentence embeddings."""

import dataclasses
import math
from typing import Any

from albert_tf.core.settings import setting
from albert_tf.model.config import SENTENCE_EMBEDDING
from albert_tf.model.pooling import POOLINGS, is_pooling
from albert_tf.tasks.embedding.loss_table import LOSSES, MOST_TEXTS, EmbeddingLoss
from albert_tf.tasks.settings import FineTuningConfig, files_setting

KINDS = ("retrieval", "scores", "triplets")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingConfig(FineTuningConfig):
    """Texts that belong together, the loss, and how a text's vector is made."""

    train_file: str = files_setting("Training data: a table with a header.")
    eval_file: str = files_setting("Development data: a table with a header.")
    predict_file: str = files_setting("Texts, in the first of --text_columns, to embed.")
    corpus_file: str = files_setting(
        "Further texts for --eval_kind=retrieval, one per line: the texts of --eval_file's second column are searched"
        " together with them."
    )
    text_columns: str = setting(
        "",
        "Names of the columns with text, separated by commas: two for scores; anchor and positive, and perhaps"
        " negatives, for infonce; anchor, positive and negative for triplets.",
        required=True,
        of_model="default",
    )
    eval_columns: str = setting("", "The same for --eval_file; by default --text_columns.")
    score_column: str = setting("score", "Column with the score of two texts.")
    max_score: float = setting(1.0, "Score of a cosine of 1, for --loss=cosine.", minimum=1e-6)
    loss: str = setting(
        "infonce",
        f"Loss: {'; '.join(f'{name} {loss.help}' for name, loss in LOSSES.items())}.",
        choices=tuple(LOSSES),
    )
    eval_kind: str = setting(
        "",
        "Evaluation: correlation with scores, accuracy on triplets, or retrieval, which searches each first text's"
        " second text among all second texts. By default, the kind that belongs to --loss.",
        choices=("", *KINDS),
    )
    scale: float = setting(
        20.0, "Factor of the cosines in infonce and cosent (1 / temperature).", minimum=1e-3
    )
    margin: float = setting(
        0.5, "Wanted difference of the two cosines of a triplet.", minimum=0, maximum=2
    )
    matryoshka_dims: str = setting(
        "",
        "Numbers of values, such as 64,128,256, to which vectors may be cut: the loss is then the mean of --loss on the"
        " first 64, 128 and 256 values. 64:2,128 doubles the weight of the first. By default, whole vectors.",
    )
    pooling: str = setting(
        str(SENTENCE_EMBEDDING["pooling"]),
        "How a vector is made of the last hidden states: "
        + "; ".join(f"{name}, {pooling.help}" for name, pooling in POOLINGS.items())
        + "; or several with + between, side by side.",
        of_model="fixed",
    )
    projection_size: int = setting(
        0,
        "Number of values of a vector, made by a new linear layer; 0 keeps the encoder's width.",
        minimum=0,
        maximum=2**16,
        of_model="fixed",
    )
    normalize: bool = setting(False, "Whether vectors have length 1.", of_model="fixed")

    def __post_init__(self):
        super().__post_init__()
        if not is_pooling(self.pooling):
            expected = f"must be one of {', '.join(POOLINGS)}, or several with + between"
            self.refuse("pooling", f"{expected}; got {self.pooling!r}")
        for size, weight in self.matryoshka_weights.items():
            if size < 1 or not 0 < weight < math.inf:
                self.refuse("matryoshka_dims", f"must be above 0, got {size}:{weight:g}")
        least, most = self.row_of_loss.num_texts if self.train_file else (1, MOST_TEXTS)
        self._check_columns("text_columns", least, most)

        kind = self.kind_of_evaluation
        if self.eval_file or self.eval_fraction:
            name = "eval_columns" if self.eval_columns else "text_columns"
            numbers_of_kinds = {"scores": (2, 2), "triplets": (3, 3)}
            least, most = numbers_of_kinds.get(kind, (2, MOST_TEXTS))
            self._check_columns(name, least, most)

        if self.eval_fraction and kind == "scores" and not self.row_of_loss.needs_scores:
            self.refuse(
                "eval_fraction",
                f"needs scores for --eval_kind=scores; --loss={self.loss} reads none",
            )
        if self.eval_fraction and self.eval_columns:
            self.refuse("eval_columns", "is for --eval_file")
        if self.corpus_file and self.kind_of_evaluation != "retrieval":
            self.refuse("corpus_file", "is for --eval_kind=retrieval")

    def _check_columns(self, name: str, least: int, most: int) -> None:
        names = columns(getattr(self, name))
        if not all(names) or len({*names}) < len(names) or not least <= len(names) <= most:
            number = f"{least}" if least == most else f"{least} to {most}"
            self.refuse(name, f"must be {number} names, got {getattr(self, name)!r}")

    @property
    def row_of_loss(self) -> EmbeddingLoss:
        """What the loss of --loss needs, and its function."""
        return LOSSES[self.loss]

    @property
    def matryoshka_weights(self) -> dict[int, float]:
        """The weights of the losses of --matryoshka_dims, by the number of values; empty without the flag."""
        weights: dict[int, float] = {}
        if not self.matryoshka_dims:
            return weights
        for entry in self.matryoshka_dims.split(","):
            size_word, has_weight, weight_word = entry.partition(":")
            try:
                size = int(size_word)
                weight = float(weight_word) if has_weight else 1.0
            except ValueError:
                expected = "must be whole numbers, or number:weight pairs"
                self.refuse("matryoshka_dims", f"{expected}; got {entry.strip()!r}")
            if size in weights:
                self.refuse("matryoshka_dims", f"has {size} twice")
            weights[size] = weight
        return weights

    @property
    def kind_of_evaluation(self) -> str:
        """The kind of --eval_kind, or of --loss."""
        return self.eval_kind or self.row_of_loss.evaluation

    def columns_of(self, split: str) -> list[str]:
        """Names of the text columns of a split."""
        names = columns((split == "eval" and self.eval_columns) or self.text_columns)
        return names[:1] if split == "predict" else names

    def columns_of_tables(self, split: str) -> list[str]:
        """See `FineTuningConfig`."""
        columns = self.columns_of(split)
        if split == "train" and self.row_of_loss.needs_scores:
            columns.append(self.score_column)
        return columns

    @property
    def sentence_embedding(self) -> dict[str, Any]:
        """The settings of the model's head."""
        return {name: getattr(self, name) for name in ("pooling", "projection_size", "normalize")}


def columns(names: str) -> list[str]:
    """The names in a list that is separated by commas."""
    return [name.strip() for name in names.split(",")]
