"""Settings of SQuAD 1.1 and 2.0."""

import contextlib
import dataclasses
import math
from typing import ClassVar

from albert_tf.core.settings import changed, setting
from albert_tf.tasks.settings import TaughtConfig, files_setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadConfig(TaughtConfig):
    """SQuAD 1.1 or 2.0."""

    version: str = setting(
        "2.0",
        "Version of SQuAD; in 1.1 every question has an answer. By default, that of the data: 2.0 if a question of"
        " --train_file or --eval_file is impossible.",
        choices=("1.1", "2.0"),
        of_model="fixed",
    )
    predictions_endings: ClassVar[tuple[str, ...]] = (".json",)
    train_file: str = files_setting("SQuAD's JSON file to train on.")
    eval_file: str = files_setting("SQuAD's JSON file to evaluate on.")
    predict_file: str = files_setting("JSON file with questions, with or without answers.")
    skip_wrong_answers: bool = setting(
        False, "Whether answers that are not at their answer_start are left out."
    )
    max_seq_length: int = changed(TaughtConfig, "max_seq_length", 384)
    doc_stride: int = setting(
        128, "Tokens from the start of a window to that of the next.", minimum=1, of_model="fixed"
    )
    max_query_length: int = setting(
        64, "Maximum number of tokens of a question.", minimum=1, of_model="fixed"
    )
    max_answer_length: int = setting(
        30, "Maximum number of tokens of an answer.", minimum=1, of_model="default"
    )
    n_best_size: int = setting(
        20,
        "Number of answers to a question in nbest_predictions.json.",
        minimum=1,
        changes_results=False,
        of_model="default",
    )
    null_threshold: str = setting(
        "best",
        "SQuAD 2.0: an answer is empty if its null odds are above this number. `best` is the number that gives the best"
        " score on the evaluated file, saved with the model.",
        changes_results=False,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.null_threshold != "best":
            with contextlib.suppress(ValueError):
                if math.isfinite(float(self.null_threshold)):
                    return
            reason = f"must be `best` or a number, got {self.null_threshold!r}"
            self.refuse("null_threshold", reason)
