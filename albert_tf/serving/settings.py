"""Settings of the programs that use a trained model."""

import dataclasses
import importlib.util
import os
from collections.abc import Mapping

from albert_tf.core.settings import Settings, changed, setting
from albert_tf.model.config import where_released
from albert_tf.tasks import registry
from albert_tf.tasks.settings import LONGEST_SEQUENCE, depth_setting
from albert_tf.text.sequences import SHORTEST_SEQUENCE
from albert_tf.text.settings import VocabularySettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSettings(VocabularySettings):
    """A finished model in any layout."""

    model: str = setting(
        "",
        "The model: the folder of a model or run, a TF1 checkpoint, a hub module, or hf:NAME; to predict, also an ONNX"
        " export. It may be given without the name of the flag.",
        required=True,
        input_path=where_released,
        changes_results=False,
    )
    spm_model_file: str = changed(
        VocabularySettings,
        "spm_model_file",
        "",
        help="SentencePiece model of the vocabulary, if none came with the model.",
    )
    task_module: str = setting(
        "", "Python file or module that defines the model's task, if it is yours; its code is run."
    )
    num_hidden_layers: int | None = depth_setting()

    def check_with(self, others: Mapping[type[Settings], Settings]) -> None:
        """Checks that --task_module exists; its code is not run."""
        name = self.task_module
        is_file, package = name.endswith(".py"), name.partition(".")[0]
        if is_file and not os.path.isfile(name):
            self.refuse("task_module", f"={name}: no such file")
        if name and not is_file and not (package and importlib.util.find_spec(package)):
            self.refuse("task_module", f"={name}: no such module")

    def register_task(self) -> None:
        """Registers the task of --task_module."""
        if self.task_module:
            registry.register_module(self.task_module)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelUseSettings(ModelSettings):
    """A trained model, and how its texts are prepared."""

    do_lower_case: bool | None = setting(
        None, "Whether text is lower-cased; by default as the model's folder says, or true."
    )
    max_seq_length: int | None = setting(
        None,
        "Maximum number of tokens of a sequence; by default, that of the fine-tuning, or the model's"
        " maximum.",
        minimum=SHORTEST_SEQUENCE,
        maximum=LONGEST_SEQUENCE,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LimitSettings(Settings):
    """Limits for clients of the server, and how requests are joined."""

    max_connections: int = setting(128, "Maximum number of connections; others get 503.", minimum=1)
    max_waiting: int = setting(
        128, "Maximum number of requests that wait for the model; others get 503.", minimum=1
    )
    max_request_bytes: int = setting(1 << 20, "Maximum size of a request.", minimum=1)
    max_instances: int = setting(64, "Maximum number of texts in a request.", minimum=1)
    answer_seconds: float = setting(30.0, "Maximum time that a request waits.", minimum=0.1)
    batch_wait_ms: float = setting(1.0, "Time that a request waits for others.", minimum=0)
