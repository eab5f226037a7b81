"""Settings of SQuAD 1.1 and 2.0."""

import dataclasses
from collections.abc import Mapping

from albert_tf.core.settings import Settings, changed, setting
from albert_tf.tasks.settings import FineTuningConfig, FineTuningRunConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadConfig(FineTuningConfig):
    """SQuAD 1.1 or 2.0."""

    version: str = setting("2.0", "1.1: every question has an answer; 2.0.", choices=("1.1", "2.0"))
    train_file: str = setting("", "SQuAD's JSON file to train on.", input_path=True)
    eval_file: str = setting("", "SQuAD's JSON file to evaluate on.", input_path=True)
    predict_file: str = setting(
        "", "JSON file with questions to answer; needs no answers.", input_path=True
    )
    max_seq_length: int = changed(FineTuningConfig, "max_seq_length", 384)
    doc_stride: int = setting(128, "Pieces from the start of a window to the next.", minimum=1)
    max_query_length: int = setting(64, "Most pieces of a question.", minimum=1)
    max_answer_length: int = setting(30, "Most pieces of an answer.", minimum=1)
    n_best_size: int = setting(20, "Answers of a question in nbest_predictions.json.", minimum=1)
    null_threshold: str = setting(
        "best",
        "SQuAD 2.0: answers whose null odds are above it are left empty: a number, or `best`, the one that was best on"
        " the evaluated file, saved with the model.",
    )

    def __post_init__(self):
        super().__post_init__()
        if self.null_threshold != "best":
            try:
                float(self.null_threshold)
            except ValueError:
                self.refuse(
                    "null_threshold", f"must be `best` or a number, got {self.null_threshold!r}"
                )
        if self.max_query_length + 3 >= self.max_seq_length:
            self.refuse(
                "max_query_length",
                f"({self.max_query_length}) leaves no room for text in --max_seq_length={self.max_seq_length}",
            )

    def check_with(self, others: Mapping[type[Settings], Settings]) -> None:
        """Checks that the files are named.

        Raises:
          UserError: a flag is missing; names it.
        """
        super().check_with(others)
        run = others[FineTuningRunConfig]
        if run.do_train and not (self.train_file or self.train_records or self.ensemble):
            self.refuse("train_file", "is required to train")
        if run.do_eval and not run.do_train and not self.eval_file:
            self.refuse("eval_file", "is required to evaluate")
        if run.do_predict and not self.predict_file and not self.ensemble:
            self.refuse("predict_file", "is required with --do_predict")
