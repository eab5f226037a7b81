"""Settings of pretraining: records and model."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from albert_tf.core.settings import Settings, changed, setting
from albert_tf.tasks.settings import LONGEST_SEQUENCE, ModelChoice, files_setting
from albert_tf.training.settings import RunConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingConfig(ModelChoice):
    """Records and model of pretraining."""

    input_file: str = files_setting(
        "Training records: TFRecord files, globs or folders, separated by commas."
    )
    eval_file: str = files_setting("Held-out records for evaluation, in the form of --input_file.")
    spm_model_file: str = changed(
        ModelChoice,
        "spm_model_file",
        "",
        help="SentencePiece model of the records; this file or the --vocab_file is copied into the model's folder.",
    )
    max_seq_length: int | None = setting(
        None,
        "Number of tokens in an example; by default, the number in the records.",
        minimum=1,
        maximum=LONGEST_SEQUENCE,
    )
    max_predictions_per_seq: int | None = setting(
        None,
        "Number of masked tokens in an example; by default, the number in the records.",
        minimum=1,
        maximum=LONGEST_SEQUENCE,
    )
    shuffle_buffer_examples: int = setting(
        10000, "Examples shuffled together; 1 reads them in order.", minimum=1, maximum=10_000_000
    )

    def check_with(self, others: Mapping[type[Settings], Any]) -> None:
        """Checks that the flags name the records that training and evaluation need."""
        run = others[RunConfig]
        if run.do_train and not self.input_file:
            self.refuse("input_file", "is required to train: TFRecords of pretraining examples")
        if not run.do_train and not self.eval_file:
            self.refuse("eval_file", "is required to evaluate: held-out TFRecords")
        self.check_model(run)
