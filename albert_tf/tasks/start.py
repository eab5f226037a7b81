"""What a fine-tuning starts from: the weights, the tokenizer and the configuration of its model.

The labels of the data decide whether the head of the initial model can be used, so the data is read on the way.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from albert_tf.core.errors import UserError
from albert_tf.formats import depth, pretrained
from albert_tf.formats.weights import LoadReport, Weights
from albert_tf.model.config import AlbertConfig
from albert_tf.model.heads import ModelWithHead
from albert_tf.tasks.settings import (
    FineTuningConfig,
    FineTuningRunConfig,
    check_fixed,
    check_length,
    path_of_used_model,
)
from albert_tf.tasks.source import Source
from albert_tf.text.tokenizer import Tokenizer


class Head:
    """The head that a task trains; this one has outputs for the labels of the data.

    Args:
      model_class: the class of the model, which has the head.
      source: the data of the task.
    """

    has_output_per_label = True  # whether the head fits only the labels that it was made for

    def __init__(self, model_class: type[ModelWithHead], source: Source):
        self.model_class = model_class
        self.source = source

    def is_in(self, weights: Weights) -> bool:
        """Whether a model was trained for the task.

        A model of others names no task. Its classifier can be used if its labels have names, and so can a head whose
        outputs need no names.
        """
        if weights.model_class != self.model_class.__name__:
            return False
        foreign = weights.config.foreign
        own_name = self.source.task_name
        has_known_outputs = "id2label" in foreign or not self.has_output_per_label
        task_name = foreign.get("finetuning_task", own_name if has_known_outputs else "")
        is_same_kind = weights.config.is_multi_label == self.source.is_multi_label
        return is_same_kind and task_name == own_name

    def labels_of(self, weights: Weights) -> Sequence[str]:
        """The labels of the outputs of a model with this head."""
        return weights.config.labels

    def fits(self, labels: Sequence[str]) -> bool:
        """Whether a head with these labels can give those of the data."""
        if not self.source.labels or not self.has_output_per_label:
            return True
        return tuple(labels) == tuple(self.source.labels)

    def described(self, config: AlbertConfig, *, is_new: bool, is_trained: bool) -> AlbertConfig:
        """The configuration of a model with this head, which may be new, and may be trained."""
        del is_new, is_trained
        source = self.source
        is_multi_label = source.is_multi_label
        return config.with_labels(source.labels, source.task_name, is_multi_label=is_multi_label)

    def initial_weights(self, weights: Weights, config: AlbertConfig, *, is_new: bool) -> Weights:
        """The weights that a model with this head starts with; `config` is that of `described`."""
        del config
        # A task may take any encoder for a model that needs no new head.
        is_same_class = weights.model_class == self.model_class.__name__
        return weights if is_same_class and not is_new else weights.without_head()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """The model before its first step."""

    weights: Weights | None  # with a head only if the task continues it; None: random values
    tokenizer: Tokenizer
    config: AlbertConfig

    def build_model(
        self, model_class: type[ModelWithHead], **options: Any
    ) -> tuple[ModelWithHead, LoadReport]:
        """The model, and which of its variables have values of the weights; `options` as for the class."""
        model = model_class(self.config, **options)
        variables = model.named_variables()
        if not self.weights:
            return model, LoadReport([], list(variables), [])
        return model, pretrained.assign_weights(variables, self.weights)

    def describe(self, report: LoadReport, task_name: str, labels: Sequence[str]) -> str:
        """Lines about the values of a model, and about its head."""
        if not self.weights:
            return "no --init_checkpoint: the model starts from random weights"
        head = "its own"
        if any(not name.startswith("bert/") for name in report.initialized):
            with_labels = f" with {', '.join(labels)}" if len(labels) < 20 else ""
            head = f"a new one for {task_name}{with_labels}"
        return f"{report.describe(self.weights.source)}\n  head: {head}"


def make_start(
    config: FineTuningConfig, run: FineTuningRunConfig, source: Source, head: Head
) -> Start:
    """Reads the initial model, or the run's own if nothing is trained, and the data, which `source` then has.

    Raises:
      UserError: the model, its vocabulary or the data cannot be read, or they do not belong together.
    """
    origin = path_of_used_model({**config.to_dict(), **run.to_dict()})
    weights = pretrained.read_weights(origin, config.num_hidden_layers) if origin else None
    vocabulary = _vocabulary_of(config, weights, origin)
    tokenizer = _read_tokenizer(config, weights, vocabulary)

    is_same_task = weights is not None and head.is_in(weights)
    if weights and is_same_task and not source.labels:
        source.initial_labels = tuple(head.labels_of(weights))
        if not run.do_train:
            source.labels = source.initial_labels
    source.read_splits(config.splits_to_read(run))

    continues_head = bool(weights and is_same_task and head.fits(head.labels_of(weights)))
    if not run.do_train:
        if not weights or not continues_head:
            raise _no_head(origin, source)
        # Programs have already checked this, except for models on a hub.
        fixed = {name: getattr(config, name) for name in config.names(of_model="fixed")}
        check_fixed(fixed, weights.task_settings, weights.source)

    model_config = _sizes(config, run, weights, tokenizer, vocabulary)
    if weights:
        weights = depth.fitted(weights, model_config)
    tokenizer.max_length = model_config.max_position_embeddings
    is_new = not continues_head
    model_config = head.described(model_config, is_new=is_new, is_trained=run.do_train)
    if weights:
        weights = head.initial_weights(weights, model_config, is_new=is_new)
    return Start(weights=weights, tokenizer=tokenizer, config=model_config)


def check_cleaning(config: FineTuningConfig, weights: Weights, tokenizer: Tokenizer) -> None:
    """Checks that a model was trained on text that is cleaned as the tokenizer does it."""
    for name, value in tokenizer.cleaning.items():
        trained = getattr(weights, name)
        if trained is not None and trained != value:
            config.refuse(
                name,
                f"is {str(value).lower()}, but the model in {weights.source} was trained with"
                f" {str(trained).lower()}",
            )


def _vocabulary_of(config: FineTuningConfig, weights: Weights | None, origin: str) -> str:
    """Path of the vocabulary: that of a flag, or the model's."""
    path = config.vocabulary_file
    if not path and weights:
        path = weights.vocabulary
    if not path:
        config.require_vocabulary(f": there is none beside {origin}")
    return path


def _read_tokenizer(
    config: FineTuningConfig, weights: Weights | None, vocabulary: str
) -> Tokenizer:
    """The tokenizer with the rules of the model, whose vocabulary and cleaning it must have."""
    rules = weights.rules.of_words() if weights else None
    tokenizer = Tokenizer.from_file(vocabulary, **config.cleaning, rules=rules)
    if not weights:
        return tokenizer
    # The shapes of a model's variables do not show its vocabulary and its case.
    if not weights.has_vocabulary_of(tokenizer):
        config.refuse(
            "spm_model_file" if config.spm_model_file else "vocab_file",
            f"={vocabulary}: is not the vocabulary that came with the model,"
            f" {weights.vocabulary}; leave the flag out",
        )
    check_cleaning(config, weights, tokenizer)
    return tokenizer


def _no_head(origin: str, source: Source) -> UserError:
    outputs = f" with the outputs {', '.join(source.labels)}" if source.labels else ""
    return UserError(
        f"{origin}: has no head for {source.task_name}{outputs}; fine-tune it with --do_train first"
    )


def _sizes(
    config: FineTuningConfig,
    run: FineTuningRunConfig,
    weights: Weights | None,
    tokenizer: Tokenizer,
    vocabulary: str,
) -> AlbertConfig:
    """The sizes of the model, which must be those that the vocabulary and the settings need."""
    of_weights = weights.config if weights else None
    sizes = config.chosen_config(run, of_weights, tokenizer.vocab_size)
    if tokenizer.vocab_size != sizes.vocab_size:
        raise UserError(
            f"{vocabulary}: has {tokenizer.vocab_size} tokens, but the model's vocab_size is"
            f" {sizes.vocab_size}; give the vocabulary that the model was pretrained with (--spm_model_file or"
            " --vocab_file)"
        )
    check_length(config.max_seq_length, sizes.max_position_embeddings)
    return sizes
