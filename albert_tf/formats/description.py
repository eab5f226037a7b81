"""What the files of a model say about its length, task and settings, without TensorFlow.

Programs compare flags with it before TensorFlow is loaded. Each layout has a function `describe` that returns it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

_OF_TEXT = ("do_lower_case", "keep_accents")


class Description(NamedTuple):
    """The known facts about a model."""

    max_position_embeddings: int | None = None
    task_name: str = ""  # "" if it was not fine-tuned
    settings: Mapping[str, Any] = {}  # of this task; for a run, all its settings


def of_sizes(sizes: Any, settings: Any) -> Description:
    """The description from a model's configuration and the settings of its task, values of files of any type."""
    if not isinstance(sizes, dict):
        sizes = {}
    if not isinstance(settings, dict):
        settings = {}
    length = sizes.get("max_position_embeddings")
    task_name = sizes.get("finetuning_task")
    is_length = type(length) is int and length > 0
    return Description(
        max_position_embeddings=length if is_length else None,
        task_name=task_name if isinstance(task_name, str) else "",
        settings=settings,
    )


def of_model(
    sizes: Mapping[str, Any], our_section: Any, tokenizer_settings: Mapping[str, Any] | None = None
) -> Description:
    """The description of a finished model.

    Args:
      sizes: the model's configuration.
      our_section: what this project wrote beside it: its `task` is the settings of the task, and it may say how text is
        cleaned; a value of any type, mostly None for models of others.
      tokenizer_settings: the tokenizer's file, which also says how text is cleaned; it takes precedence.
    """
    if not isinstance(our_section, dict):
        our_section = {}
    about_text = {**our_section, **(tokenizer_settings or {})}
    cleaning = {name: about_text[name] for name in _OF_TEXT if name in about_text}
    task = our_section.get("task")
    if not isinstance(task, dict):
        task = {}
    return of_sizes(sizes, {**cleaning, **task})
