r"""Teaches a folded model the positions that its distillation did not reach, in PyTorch; nothing else changes.

    python -m lab.fold.positions --teacher=minilm --model=models/albert-minilm-l6 --text_dir=work/fold \
        --output_dir=runs/long

The rows of `lab.fold` have 128 tokens. A text that is not longer keeps its vectors to the last bit. --text_dir has
long.txt and long_held_out.txt of `lab.fold.text`. Needs PyTorch beside the project (extra `peers`).
"""

import dataclasses
import json
import pathlib
import shutil
from typing import Any

import numpy as np
import safetensors
import torch
from safetensors.numpy import load_file, save_file

from albert_tf.core import flags
from albert_tf.core.settings import Settings, setting
from albert_tf.formats import pretrained
from albert_tf.text.tokenizer import Tokenizer
from lab.fold import __main__ as sizes
from lab.fold import in_torch

_TABLE, _STORED = "bert/embeddings/position_embeddings", "embeddings.position_embeddings.weight"
_REACHED, _LENGTH, _ROWS = 128, 512, 8
_TEXTS, _HELD_OUT_TEXTS = 6_000, 120
_RATE, _WARMUP, _BETAS = 2e-2, 10, (0.9, 0.98)
_RIDGE = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class PositionSettings(Settings):
    """The models, the text and the steps."""

    teacher: str = setting("", "The model that was folded.", required=True, input_path=True)
    model: str = setting("", "The folded model.", required=True, input_path=True)
    text_dir: str = setting("", "Folder of long.txt and long_held_out.txt.", required=True)
    output_dir: str = setting("", "Folder that gets the model.", required=True)
    num_train_steps: int = setting(350, "Steps.", minimum=_WARMUP + 1)


def continued(student_PE: np.ndarray, teacher_PD: np.ndarray) -> np.ndarray:
    """A student's table whose rows that were not reached come from the teacher's by ridge regression of the others."""
    inputs = np.hstack([teacher_PD, np.ones([len(teacher_PD), 1])])
    known = inputs[:_REACHED]
    products = known.T @ known
    penalty = _RIDGE * np.trace(products) / len(products) * np.eye(len(products))
    found = np.linalg.solve(products + penalty, known.T @ student_PE[:_REACHED])
    return np.concatenate([student_PE[:_REACHED], inputs[_REACHED:] @ found]).astype(np.float32)


def train(distillation: in_torch.Distillation, steps: int) -> None:
    """Trains the rows of the table that were not reached."""
    table = distillation.student.parameters[_TABLE].requires_grad_()
    optimizer = torch.optim.Adam([table], betas=_BETAS)
    generator = torch.Generator().manual_seed(0)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = _RATE * (1 - step / steps) * min(1, (step + 1) / _WARMUP)
        places = torch.randint(len(distillation.text.ids), (_ROWS,), generator=generator)
        optimizer.zero_grad()
        loss = distillation.loss(distillation.text.at(places))
        loss.backward()
        table.grad[:_REACHED] = 0
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}, loss {loss.item():.4f}", flush=True)
    table.requires_grad_(False)


def write(model: str, output_dir: str, table: np.ndarray) -> None:
    """A copy of the model with another table."""
    shutil.copytree(model, output_dir)
    path = pathlib.Path(output_dir, "model.safetensors")
    with safetensors.safe_open(path, "np") as file:
        about = file.metadata()
    tensors = load_file(path)
    name = next(name for name in tensors if name.endswith(_STORED))
    tensors[name] = table.astype(tensors[name].dtype)
    save_file(tensors, path, metadata=about)


def main(settings: PositionSettings) -> None:
    """Trains, evaluates before and after, and writes the model."""
    weights, known = map(pretrained.read_weights, (settings.model, settings.teacher))
    tokenizer = Tokenizer.from_file(known.vocabulary, **known.cleaning)

    def distillation(name: str, most: int) -> in_torch.Distillation:
        lines = pathlib.Path(settings.text_dir, name).read_text().split("\n")[:most]
        rows = sizes.packed(sizes.tokens(tokenizer, lines, _LENGTH), _LENGTH)
        return in_torch.Distillation(student, teacher, in_torch.Rows.load(*rows, "cpu"))

    arrays: dict[str, Any] = dict(weights.arrays)
    student = in_torch.Encoder(weights.config, arrays, "cpu", trained=False)
    teacher = in_torch.Encoder(known.config, known.arrays, "cpu", trained=False)
    student.dtype = teacher.dtype = torch.bfloat16
    held_out = distillation("long_held_out.txt", _HELD_OUT_TEXTS)
    results = {"before": held_out.evaluate(_ROWS)}
    table = student.parameters[_TABLE]
    table.copy_(torch.from_numpy(continued(table.numpy(), known.arrays[_TABLE])))
    results["continued"] = held_out.evaluate(_ROWS)
    train(distillation("long.txt", _TEXTS), settings.num_train_steps)
    results["trained"] = held_out.evaluate(_ROWS)
    write(settings.model, settings.output_dir, table.numpy())
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    flags.run(main, PositionSettings, description=__doc__)
