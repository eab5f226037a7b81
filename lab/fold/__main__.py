r"""Folds and distills a teacher on a GPU: Tables 3 and 4 of the paper on a trained model, and the published model.

    python -m lab.fold --teacher=all-MiniLM-L6-v2 --data_dir=data --text_dir=work/fold --sizes=128-all-3 \
        --rows=128 --learning_rate=3e-3 --hidden_weight=1.5 --relation_weight=0.3 --train_minutes=1.33 \
        --output_dir=runs/folded --results_file=runs/folded.json

Needs PyTorch beside the project (extra `peers`), and a GPU to be fast. --text_dir has the files of `lab.fold.text`;
positions from --row_tokens on learn nothing. A size is E, what is shared, and perhaps the number of groups and which
layers start them: 128-all, 128-all-3, 128-all-1-mean. Without --sizes, all are trained; finished ones are not repeated.
"""

import csv
import dataclasses
import datetime
import itertools
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.core import files, flags
from albert_tf.core.settings import Settings, setting
from lab import machine, real_weights

EMBEDDING_SIZES, STRATEGIES = (64, 128, 256, 384), ("all", "attention", "ffn", "none")
GROUPS = (2, 3, 6)
DECIDING = (
    *("128-all", "256-all", "384-all", "128-attention", "128-ffn", "128-none", "384-none"),
    "128-all-3",
)
_LENGTH = 128  # of a row
_SHORTEST = 3  # tokens for which a row is kept open
_SST2_EXAMPLES = 5_000  # of the training set, for the classifier of frozen vectors


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoldedSettings(Settings):
    """The teacher, the data, and which sizes are trained for how long."""

    teacher: str = setting("", "Model to fold.", required=True, input_path=True)
    data_dir: str = setting("", "Folder with glue/.", required=True, input_path=True)
    text_dir: str = setting("", "Folder with train.txt and held_out.txt.", required=True)
    results_file: str = setting("docs/results/data/fold_sizes.json", "JSON file of the results.")
    output_dir: str = setting("", "Folder that gets the model; of one size and seed.")
    sizes: str = setting("", "Sizes such as 128-all; empty means all of the experiment.")
    seeds: str = setting("1", "Seeds, separated by commas.")
    num_train_steps: int = setting(1000, "Steps of distillation.", minimum=10)
    train_minutes: float = setting(0.0, "Trains this long instead.", minimum=0)
    rows: int = setting(32, "Rows in a batch.", minimum=1)
    row_tokens: int = setting(_LENGTH, "Tokens of a row; if more, long texts, too.", minimum=8)
    learning_rate: float = setting(7e-4, "Peak of the learning rate.", minimum=0)
    hidden_weight: float = setting(0.5, "Weight of the inner layers.", minimum=0)
    relation_weight: float = setting(0.0, "Weight of attention's relations.", minimum=0)


def all_sizes() -> list[str]:
    """Names of the sizes of the experiment, those that decide a claim first."""
    names = [f"{e}-{strategy}" for e, strategy in itertools.product(EMBEDDING_SIZES, STRATEGIES)]
    names += [f"128-all-{groups}" for groups in GROUPS]
    return sorted(names, key=lambda name: name not in DECIDING)


def folded(weights: Any, name: str) -> Any:
    """The initial values of a size."""
    from albert_tf.formats import folding

    embedding_size, strategy, *rest = name.split("-")
    config = weights.config.replace(
        embedding_size=int(embedding_size),
        share_parameters=strategy,
        num_hidden_groups=int(rest[0]) if rest else 1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return folding.fold(weights, config, layers_from=rest[1] if rest[1:] else "middle")[0]


def packed(texts: Sequence[np.ndarray], length: int = _LENGTH) -> tuple[np.ndarray, np.ndarray]:
    """Texts in rows, each in the fullest one that has room: token ids, and numbers of texts from 1, [X, L]."""
    open_rows: list[list[int]] = [[] for _ in range(length + 1)]  # by their room
    rows: list[list[np.ndarray]] = []
    for text in texts:
        room = next((room for room in range(len(text), length + 1) if open_rows[room]), length)
        if open_rows[room]:
            row = open_rows[room].pop()
        else:
            row = len(rows)
            rows.append([])
        rows[row].append(text)
        if room - len(text) >= _SHORTEST:
            open_rows[room - len(text)].append(row)
    ids, numbers = (np.zeros([len(rows), length], np.int32) for _ in range(2))
    for row, parts in enumerate(rows):
        joined = np.concatenate(parts)
        ids[row, : len(joined)] = joined
        numbers[row, : len(joined)] = np.repeat(np.arange(len(parts)) + 1, list(map(len, parts)))
    return ids, numbers


class Tasks:
    """STS-B without training on it, and SST-2 by a linear classifier on frozen vectors."""

    def __init__(self, data_dir: str):
        self._stsb = real_weights.read_data(data_dir)
        self._sst2 = [self._sentences(data_dir, f"{name}.tsv") for name in ("train", "dev")]

    @staticmethod
    def _sentences(data_dir: str, name: str) -> tuple[list[str], list[str]]:
        path = pathlib.Path(data_dir) / "glue" / "SST-2" / name
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
        return [row[0] for row in rows[:_SST2_EXAMPLES]], [row[1] for row in rows[:_SST2_EXAMPLES]]

    def scores(self, embed: real_weights.Embed) -> dict[str, float]:
        """100 times Spearman's correlation, and accuracy in percent."""
        from sklearn.linear_model import LogisticRegression

        (texts, labels), (dev_texts, dev_labels) = self._sst2
        classifier = LogisticRegression(max_iter=1000, C=10).fit(embed(texts), labels)
        found = {"sst2": 100 * classifier.score(embed(dev_texts), dev_labels)}
        for name, score in real_weights.scores(embed, self._stsb).items():
            found[f"stsb_{name}"] = round(100 * score, 3)
        return found


class Program:
    """The teacher, the text and the tasks, on the device."""

    def __init__(self, settings: FoldedSettings):
        import torch

        from albert_tf.formats import pretrained
        from albert_tf.text.tokenizer import Tokenizer
        from lab.fold import in_torch

        self._settings, self._weights = settings, pretrained.read_weights(settings.teacher)
        self._tokenizer = Tokenizer.from_file(self._weights.vocabulary, **self._weights.cleaning)
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._device_name = torch.cuda.get_device_name() if self._device == "cuda" else "cpu"
        self._tasks = Tasks(settings.data_dir)
        self._text, self._held_out = map(self._rows, ("train.txt", "held_out.txt"))
        self._teacher = in_torch.Encoder(
            self._weights.config, self._weights.arrays, self._device, trained=False
        )

    def _tokens(self, texts: Sequence[str], length: int = _LENGTH) -> list[np.ndarray]:
        ends = [self._tokenizer.cls_id], [self._tokenizer.sep_id]
        ids = self._tokenizer.encode_batch(list(texts))
        return [np.concatenate([ends[0], one[: length - 2], ends[1]]) for one in ids]

    def _rows(self, name: str) -> Any:
        from lab.fold import in_torch

        folder, length = pathlib.Path(self._settings.text_dir), self._settings.row_tokens
        names = [name, f"long_{name}"] if length > _LENGTH else [name]
        lines = "".join((folder / name).read_text() for name in names).split("\n")[:-1]
        return in_torch.Rows.load(*packed(self._tokens(lines, length), length), self._device)

    def scores(self, encoder: Any = None) -> dict[str, float]:
        """Those of a student, or of the teacher."""
        one = encoder or self._teacher
        return self._tasks.scores(lambda texts: one.embed(self._tokens(texts)))

    def trained(self, size: str, seed: int) -> dict[str, Any]:
        """What is recorded of a size, which is trained and, if --output_dir is given, written."""
        from lab.fold import in_torch

        settings, initial = self._settings, folded(self._weights, size)
        student = in_torch.Encoder(initial.config, initial.arrays, self._device, trained=True)
        steps = 10**6 if settings.train_minutes else settings.num_train_steps
        weights = {key: getattr(settings, key) for key in ("hidden_weight", "relation_weight")}
        run = in_torch.Distillation(student, self._teacher, self._text, **weights).run(
            steps=steps,
            rows=settings.rows,
            rate=settings.learning_rate,
            warmup=300 if settings.train_minutes else steps // 12,
            seed=seed,
            seconds=60 * settings.train_minutes,
        )
        if settings.output_dir:
            self._write(initial, student)
        found = in_torch.Distillation(student, self._teacher, self._held_out).evaluate()
        return {
            "size": size,
            "seed": seed,
            "parameters": sum(array.size for array in initial.arrays.values()),
            "error": found[f"error_{student.config.num_hidden_layers}"],
            **found,
            **self.scores(student),
            **run,
            **weights,
            "rows": settings.rows,
            "learning_rate": settings.learning_rate,
            "date": f"{datetime.date.today()}",
            "commit": machine.commit(".", short=True),
            "device": self._device_name,
        }

    def _write(self, initial: Any, student: Any) -> None:
        from albert_tf.formats import pretrained

        arrays = {name: x.detach().cpu().numpy() for name, x in student.parameters.items()}
        result = dataclasses.replace(initial, arrays={**initial.arrays, **arrays})
        model, report = pretrained.build_model(result)
        options = {"task": dict(initial.task_settings), "untrained": report.initialized}
        pretrained.save_pretrained(
            model, self._settings.output_dir, "hf", self._tokenizer, **options
        )


def main(settings: FoldedSettings) -> None:
    """Trains every size and seed that is not finished, and adds its numbers to the results."""
    program, path = Program(settings), pathlib.Path(settings.results_file)
    content: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"runs": []}
    if "teacher" not in content:
        content["teacher"] = program.scores()
    done = {(run["size"], run["seed"]) for run in content["runs"]}
    sizes = [name for name in settings.sizes.split(",") if name] or all_sizes()
    for seed, size in itertools.product(map(int, settings.seeds.split(",")), sizes):
        if (size, seed) not in done:
            entry = program.trained(size, seed)
            content["runs"].append(entry)
            files.write_bytes(str(path), files.json_bytes(content))
            shown = ("size", "seed", "error", "stsb_dev")
            print({name: entry[name] for name in shown}, flush=True)


if __name__ == "__main__":
    flags.run(main, FoldedSettings, description=__doc__)
