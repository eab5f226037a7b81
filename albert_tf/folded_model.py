"""Folding and distillation in Python: `albert_tf.fold(model)`, and `distill` and `save_pretrained` of the result.

Each step is the program of the same name on a temporary folder, so that values, checks and messages are those of the
shell. docs/fold.md explains what the steps do.
"""

import dataclasses
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from albert_tf import convert, distill, fold_to_folder
from albert_tf.core.errors import UserError
from albert_tf.core.files import HUB_PREFIX, write_bytes
from albert_tf.core.settings import Settings
from albert_tf.formats import hub_names
from albert_tf.tasks.distillation.settings import (
    DistillationConfig,
    DistillationOptimizerConfig,
    DistillationRunConfig,
)

_FOLDED = "folded"
_MODEL_OF_RUN = "model"


class FoldedModel:
    """A folded encoder, in a temporary folder that is removed with this object.

    Attributes:
      path: the folder of the model as it is now, which `load_predictor` and `load_pretrained` read.
      teacher: the folder of the model that was folded, from which `distill` learns.
    """

    def __init__(self, teacher: str):
        self.teacher = teacher
        self._folder = tempfile.mkdtemp(prefix="albert_tf_fold_")
        self._num_distillations = 0
        self.path = os.path.join(self._folder, _FOLDED)
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def distill(
        self,
        texts: Sequence[str],
        *,
        minutes: float = 10.0,
        held_out_texts: Sequence[str] = (),
        **settings: Any,
    ) -> "FoldedModel":
        """Learns the hidden states of the model that was folded, and returns this object.

        Args:
          texts: what it learns from, without labels, like those of its later use and as long.
          minutes: the budget of training time; `num_train_steps=...` instead trains that many steps.
          held_out_texts: other texts, on which errors are computed during the training.
          settings: flags of `albert-tf distill` (docs/cli.md), such as mixed_precision="mixed_bfloat16".

        Raises:
          UserError: there is no text, or a setting is unknown or out of its range.
        """
        self._num_distillations += 1
        prefix = os.path.join(self._folder, f"distillation_{self._num_distillations}")
        settings["teacher"] = self.teacher
        settings["init_checkpoint"] = self.path
        settings["output_dir"] = prefix
        settings["input_file"] = _write_lines(f"{prefix}_texts.txt", texts, "texts")
        if held_out_texts:
            held_out_file = f"{prefix}_held_out.txt"
            settings["eval_file"] = _write_lines(held_out_file, held_out_texts, "held_out_texts")
        if "num_train_steps" not in settings:
            settings["train_minutes"] = minutes
        classes = (DistillationRunConfig, DistillationOptimizerConfig, DistillationConfig)
        distill.main(*_divided(settings, classes))
        self.path = os.path.join(prefix, _MODEL_OF_RUN)
        return self

    def save_pretrained(self, folder: str, format: str = "hf") -> None:
        """Writes the model with its tokenizer to a folder that contains no model (`albert-tf convert`).

        Raises:
          UserError: the folder contains a model.
        """
        convert.main(
            convert.ConvertSettings(model=self.path, output_dir=os.fspath(folder), format=format)
        )


def fold(
    model: str,
    *,
    embedding_size: int | None = None,
    num_hidden_groups: int | None = None,
    **settings: Any,
) -> FoldedModel:
    """Folds a trained BERT or ALBERT into a smaller ALBERT, as a start for `distill`.

    Args:
      model: a folder, a run, a checkpoint, or `hf:owner/name`.
      embedding_size: E, the width of the embeddings; by default 128, or the model's own if that is smaller.
      num_hidden_groups: into how many groups of equal layers the layers are divided; by default, three.
      settings: other flags of `albert-tf fold` (docs/cli.md), such as num_folded_layers=3.

    Raises:
      UserError: the model cannot be read or folded, or a setting is unknown or out of its range.
    """
    teacher = os.fspath(model)
    if teacher.startswith(HUB_PREFIX):
        teacher = hub_names.fetched(teacher)
    result = FoldedModel(teacher)
    settings |= {"model": teacher, "output_dir": result.path}
    settings |= {"embedding_size": embedding_size, "num_hidden_groups": num_hidden_groups}
    (fold_settings,) = _divided(settings, (fold_to_folder.FoldSettings,))
    fold_to_folder.main(fold_settings)
    return result


def _write_lines(path: str, texts: Iterable[str], name: str) -> str:
    """Writes each text on a line of its own, and returns the path."""
    if isinstance(texts, str):
        raise UserError(f"{name}: expected a list of texts, got one text")
    lines = [" ".join(text.split()) for text in texts]
    lines = [line for line in lines if line]
    if not lines:
        raise UserError(f"{name}: expected at least one text that is not empty")
    write_bytes(path, "".join(f"{line}\n" for line in lines).encode())
    return path


def _divided(values: dict[str, Any], classes: Sequence[type[Settings]]) -> list[Any]:
    """The settings of each class, made of the values with the names of its fields."""
    known = {field.name for kind in classes for field in dataclasses.fields(kind)}
    unknown = sorted(values.keys() - known)
    if unknown:
        raise UserError(f"{unknown[0]}: is no setting here; known are {', '.join(sorted(known))}")
    settings = []
    for kind in classes:
        own_names = {field.name for field in dataclasses.fields(kind)}
        settings.append(kind(**{name: values[name] for name in own_names & values.keys()}))
    by_class = dict(zip(classes, settings, strict=True))
    for one in settings:
        one.check_with(by_class)
    return settings
