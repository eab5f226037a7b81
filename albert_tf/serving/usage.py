"""What a finished model is used with: its vocabulary, and the settings that its features depend on."""

from collections.abc import Mapping
from typing import Any

from albert_tf.core.errors import UserError
from albert_tf.formats.weights import Weights
from albert_tf.tasks.race.settings import RaceConfig
from albert_tf.tasks.settings import FineTuningConfig
from albert_tf.tasks.squad.settings import SquadConfig
from albert_tf.text.tokenizer import Tokenizer

# For folders that do not say what their model was fine-tuned with, as those of other projects.
_SQUAD_NAMES = (
    "max_seq_length",
    "doc_stride",
    "max_query_length",
    "max_answer_length",
    "n_best_size",
)
_DEFAULTS: Mapping[str, tuple[type[FineTuningConfig], tuple[str, ...]]] = {
    "AlbertForSpan": (SquadConfig, _SQUAD_NAMES),
    "AlbertForSpanOrNone": (SquadConfig, _SQUAD_NAMES),
    "AlbertForMultipleChoice": (RaceConfig, ("max_seq_length", "max_qa_length")),
}


def tokenizer_of(
    weights: Weights, spm_model_file: str = "", do_lower_case: bool | None = None
) -> Tokenizer:
    """The vocabulary that a model was trained with.

    Args:
      weights: the model as it was found.
      spm_model_file: its vocabulary, if none came with it.
      do_lower_case: whether text is lower-cased; None takes what the model's folder says, true if it says nothing.

    Raises:
      UserError: there is no vocabulary, or it has not as many pieces as the model.
    """
    path = spm_model_file or weights.vocabulary
    if not path:
        raise UserError(
            f"{weights.source}: no vocabulary came with this model; name its SentencePiece model with --spm_model_file"
        )
    if do_lower_case is None:
        do_lower_case = weights.do_lower_case is not False
    tokenizer = Tokenizer.from_file(path, do_lower_case=do_lower_case)
    if tokenizer.vocab_size != weights.config.vocab_size:
        raise UserError(
            f"{path}: has {tokenizer.vocab_size} pieces, but vocab_size of the model {weights.source} is"
            f" {weights.config.vocab_size}; name the vocabulary that it was trained with (--spm_model_file)"
        )
    return tokenizer


def task_settings_of(weights: Weights, max_seq_length: int = 0) -> dict[str, Any]:
    """What the features of a model depend on, besides its vocabulary.

    Args:
      weights: the model as it was found.
      max_seq_length: most pieces of a sequence; 0 takes what the model was fine-tuned with, or its longest.

    Returns:
      `max_seq_length`; for a model that was fine-tuned on SQuAD or RACE, all that it was fine-tuned with.

    Raises:
      UserError: the length is above the model's.
    """
    limit = weights.config.max_position_embeddings
    config, names = _DEFAULTS.get(weights.model_class, (FineTuningConfig, ()))
    settings = {name: config.__dataclass_fields__[name].default for name in names}
    settings["max_seq_length"] = min(limit, settings.get("max_seq_length", limit))
    if weights.model_class == "AlbertForSpanOrNone":
        settings["null_threshold"] = 0.0
    settings |= weights.task
    settings["max_seq_length"] = max_seq_length or settings["max_seq_length"]
    if settings["max_seq_length"] > limit:
        raise UserError(
            f"--max_seq_length={settings['max_seq_length']} is above max_position_embeddings of the model"
            f" {weights.source}, {limit}"
        )
    return settings
