"""Settings of the programs that use a trained model."""

import dataclasses
import importlib.util
import os
from collections.abc import Mapping

from albert_tf.core.settings import Settings, changed, setting
from albert_tf.model.config import where_released
from albert_tf.tasks import registry
from albert_tf.tasks.settings import LONGEST_SEQUENCE, files_setting
from albert_tf.text.settings import VocabularySettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSource(VocabularySettings):
    """A finished model in any layout."""

    model: str = files_setting(
        "The model: the folder of a model or run, a TF1 checkpoint, a hub module, or hf:NAME. The name of the flag may"
        " be left out.",
        required=True,
        if_missing=where_released,
    )
    spm_model_file: str = changed(
        VocabularySettings,
        "spm_model_file",
        "",
        help="SentencePiece model of the vocabulary, if none came with the model.",
    )
    task_module: str = setting(
        "",
        "Python file or module that defines the model's task, if it is your own; its code is run.",
    )

    def check_with(self, others: Mapping[type[Settings], Settings]) -> None:
        """Checks that --task_module exists; its code is not run.

        Raises:
          UserError: it does not.
        """
        name = self.task_module
        is_file, package = name.endswith(".py"), name.partition(".")[0]
        if is_file and not os.path.isfile(name):
            self.refuse("task_module", f"={name}: no such file")
        if name and not is_file and not (package and importlib.util.find_spec(package)):
            self.refuse("task_module", f"={name}: no such module")

    def register_task(self) -> None:
        """Makes the task of --task_module known.

        Raises:
          UserError: there is no such module, or it defines no task.
        """
        if self.task_module:
            registry.register_module(self.task_module)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelUse(ModelSource):
    """A trained model and the preprocessing of its texts."""

    do_lower_case: bool | None = setting(
        None,
        "Whether text is lower-cased; by default, the model's folder decides, and true if it does not say it.",
    )
    max_seq_length: int | None = setting(
        None,
        "Largest number of tokens of a sequence; by default, or with 0, that of the fine-tuning, or the model's"
        " longest.",
        minimum=4,
        maximum=LONGEST_SEQUENCE,
        none_value=0,
    )
