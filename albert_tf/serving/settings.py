"""Settings of the programs that use a trained model."""

import dataclasses
import importlib.util
import os
import re
from collections.abc import Mapping

from albert_tf.core.settings import Settings, changed, setting
from albert_tf.formats import layouts
from albert_tf.formats.weights import Weights
from albert_tf.model.released_models import where_released
from albert_tf.tasks import registry
from albert_tf.tasks.settings import LONGEST_SEQUENCE, depth_setting
from albert_tf.text.model_inputs import SHORTEST_SEQUENCE
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
        is_file = name.endswith(".py")
        package = name.partition(".")[0]
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

    def read_weights(self) -> Weights:
        """The model, with the vocabulary and the treatment of case that are given."""
        weights = layouts.read_weights(self.model, self.num_hidden_layers)
        if self.vocabulary_file:
            weights = dataclasses.replace(weights, vocabulary=self.vocabulary_file)
        if self.do_lower_case is not None:
            weights = dataclasses.replace(weights, do_lower_case=self.do_lower_case)
        return weights


@dataclasses.dataclass(frozen=True, kw_only=True)
class LimitSettings(Settings):
    """Limits for clients of the server, and how requests are joined."""

    max_connections: int = setting(128, "Maximum number of connections; others get 503.", minimum=1)
    max_waiting: int = setting(
        128, "Maximum number of requests that wait for the model; others get 503.", minimum=1
    )
    max_request_bytes: int = setting(1 << 23, "Maximum size of a request.", minimum=1)
    max_instances: int = setting(
        2048,
        "Maximum number of texts in a request. The model gets them in batches; between two of them, other requests have"
        " their turn.",
        minimum=1,
    )
    max_text_characters: int = setting(
        1_000_000, "Maximum number of characters of a text; longer ones get 413.", minimum=1
    )
    answer_seconds: float = setting(
        30.0, "Maximum time that a request, or a batch of a long one, waits.", minimum=0.1
    )
    batch_wait_ms: float = setting(1.0, "Time that a request waits for others.", minimum=0)
    shutdown_seconds: int = setting(
        10,
        "Time that requests have to end after SIGTERM or Ctrl-C, half-sent ones too; then they get 503.",
        minimum=1,
    )
    allowed_hosts: str = setting(
        "",
        "Host names of this server besides localhost, this machine's and that of --host, separated by commas; requests"
        " to others get 400. IP addresses are always allowed; *.example.com allows every such name, * any.",
    )
    cors_origin: str = setting(
        "",
        "Origins of web pages whose scripts may use this server, such as http://localhost:3000, separated by commas; *"
        " is any. By default, only its own page may.",
    )

    def __post_init__(self):
        super().__post_init__()
        for origin in self.listed("cors_origin"):
            if origin != "*" and not re.fullmatch(r"https?://[^/\s]+", origin):
                expected = "expected scheme and host without a path, such as http://localhost:3000"
                self.refuse("cors_origin", f"={origin}: {expected}")

    def listed(self, name: str) -> list[str]:
        """The entries of a setting that commas separate."""
        entries = [entry.strip() for entry in getattr(self, name).split(",")]
        return [entry for entry in entries if entry]
