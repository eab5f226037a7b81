"""Folding and distillation in Python: `albert_tf.fold(model)`, and `distill` and `save_pretrained` of the result.

Each step is the program of the same name on a temporary folder, so that values, checks and messages are those of the
shell. docs/guides/fold.md explains what the steps do.
"""

import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from typing import Any

from albert_tf import functions
from albert_tf.core.files import HUB_PREFIX
from albert_tf.formats import hub_names
from albert_tf.user_files.python_data import lines_of

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
          settings: flags of `albert-tf distill` (docs/reference/cli.md), such as mixed_precision="mixed_bfloat16".

        Raises:
          UserError: there is no text, or a setting is unknown or out of its range.
        """
        self._num_distillations += 1
        prefix = os.path.join(self._folder, f"distillation_{self._num_distillations}")
        settings["teacher"] = self.teacher
        settings["init_checkpoint"] = self.path
        settings["output_dir"] = prefix
        settings["input_file"] = lines_of(texts, "texts")
        if held_out_texts:
            settings["eval_file"] = lines_of(held_out_texts, "held_out_texts")
        if "num_train_steps" not in settings:
            settings["train_minutes"] = minutes
        functions.call("distill", **settings)
        self.path = os.path.join(prefix, _MODEL_OF_RUN)
        return self

    def save_pretrained(self, folder: str, format: str = "hf") -> None:
        """Writes the model with its tokenizer to a folder that contains no model (`albert-tf convert`).

        Raises:
          UserError: the folder contains a model.
        """
        functions.call("convert", self.path, output_dir=folder, format=format)


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
      settings: other flags of `albert-tf fold` (docs/reference/cli.md), such as num_folded_layers=3.

    Raises:
      UserError: the model cannot be read or folded, or a setting is unknown or out of its range.
    """
    teacher = os.fspath(model)
    if teacher.startswith(HUB_PREFIX):
        teacher = hub_names.fetched(teacher)
    result = FoldedModel(teacher)
    functions.call(
        "fold",
        teacher,
        output_dir=result.path,
        embedding_size=embedding_size,
        num_hidden_groups=num_hidden_groups,
        **settings,
    )
    return result
