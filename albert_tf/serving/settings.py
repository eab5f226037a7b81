"""Settings of programs that use a finished model."""

import dataclasses

from albert_tf.core.settings import Settings, setting
from albert_tf.tasks import registry


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSource(Settings):
    """A finished model in any layout."""

    model: str = setting(
        "",
        "The model: a model's or run's folder, a TF1 checkpoint, a hub module, or hf:NAME. The name of the flag may be"
        " left out.",
        required=True,
        input_path=True,
    )
    spm_model_file: str = setting(
        "", "Its SentencePiece model, if none came with it.", input_path=True
    )
    task_module: str = setting(
        "",
        "Python file or module that defines the model's task, if it is your own; its code is run.",
    )

    def register_task(self) -> None:
        """Makes the task of --task_module known.

        Raises:
          UserError: there is no such module, or it defines no task.
        """
        if self.task_module:
            registry.register_module(self.task_module)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelUse(ModelSource):
    """A finished model and how texts become its input."""

    do_lower_case: str = setting(
        "auto",
        "Whether text is lower-cased; `auto` takes what the model's folder says, true if it says nothing.",
        choices=("auto", "true", "false"),
    )
    max_seq_length: int = setting(
        0,
        "Most tokens of a sequence; 0 takes what the model was fine-tuned with, or its longest.",
        minimum=0,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.max_seq_length and self.max_seq_length < 4:
            self.refuse("max_seq_length", f"must be 0 or at least 4, got {self.max_seq_length}")

    @property
    def lower_case(self) -> bool | None:
        """Whether text is lower-cased; None if the model's folder is to say."""
        return {"auto": None, "true": True, "false": False}[self.do_lower_case]
