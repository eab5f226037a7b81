"""The sizes of a task's model, from the flags, the initial checkpoint and the vocabulary."""

from albert_tf.formats.pretrained import Weights
from albert_tf.model.config import AlbertConfig
from albert_tf.tasks.settings import ModelChoice
from albert_tf.training.settings import RunConfig


def chosen_config(
    choice: ModelChoice, run: RunConfig, weights: Weights | None, vocab_size: int | None
) -> AlbertConfig:
    """The model's sizes.

    Args:
      choice: the name of a size, or a file, or neither.
      run: dropout rates that replace the model's.
      weights: the initial checkpoint, whose sizes are taken if `choice` names none.
      vocab_size: V of the data, for sizes by name, which leave the vocabulary open.

    Raises:
      UserError: a configuration file is wrong.
    """
    changes = {"share_parameters": choice.share_parameters} if choice.share_parameters else {}
    for rate in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob"):
        if getattr(run, rate) is not None:
            changes[rate] = getattr(run, rate)
    if choice.albert_config_file:
        config = AlbertConfig.from_json_file(choice.albert_config_file)
    elif choice.model:
        config = AlbertConfig.from_name(choice.model)
        if vocab_size:
            changes["vocab_size"] = vocab_size
    else:
        config = weights.config
    return config.replace(**changes)
