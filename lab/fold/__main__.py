r"""Folds and distills a teacher on a GPU: Tables 3 and 4 of the paper on a trained model, and the published model.

    python -m lab.fold --teacher=all-MiniLM-L6-v2 --data_dir=data --text_dir=work/fold --sizes=128-all-3 \
        --row_tokens=512 --hidden_weight=2.5 --kernel_decay=0.025 --compiles --train_minutes=5.17 \
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

EMBEDDING_SIZES = (64, 128, 256, 384)
STRATEGIES = ("all", "attention", "ffn", "none")
GROUPS = (2, 3, 6)
DECIDING = (
    "128-all",
    "256-all",
    "384-all",
    "128-attention",
    "128-ffn",
    "128-none",
    "384-none",
    "128-all-3",
)
OPTIMIZERS = ("muon", "adamw")
_LENGTH = 128  # of a row
_PAIR_TOKENS = 384  # of a pair, with its special tokens; its first text has at most a sixth of them
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
    row_tokens: int = setting(
        _LENGTH, "Tokens of a row; if more than 128, long texts and pairs, too.", minimum=8
    )
    optimizer: str = setting("muon", "Optimizer of the blocks' kernels.", choices=OPTIMIZERS)
    learning_rate: float = setting(3e-3, "Peak of the learning rate.", minimum=0)
    kernel_decay: float = setting(0.01, "Weight decay of Muon.", minimum=0)
    hidden_weight: float = setting(1.5, "Weight of the inner layers.", minimum=0)
    relation_weight: float = setting(0.0, "Weight of attention's relations.", minimum=0)
    compiles: bool = setting(False, "Whether to compile the loss, which a GPU needs to be fast.")


def all_sizes() -> list[str]:
    """Names of the sizes of the experiment, those that decide a claim first."""
    names = [f"{e}-{strategy}" for e, strategy in itertools.product(EMBEDDING_SIZES, STRATEGIES)]
    names += [f"128-all-{groups}" for groups in GROUPS]
    return sorted(names, key=lambda name: name not in DECIDING)


def folded(weights: Any, name: str) -> Any:
    """The initial values of a size."""
    from albert_tf.formats import folding

    # "128-all", "128-all-3" or "128-all-1-mean"
    embedding_size, strategy, *others = name.split("-")
    config = weights.config.replace(
        embedding_size=int(embedding_size),
        share_parameters=strategy,
        num_hidden_groups=int(others[0]) if others else 1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    layers_from = others[1] if len(others) > 1 else "middle"
    folded_weights, _ = folding.fold(weights, config, layers_from=layers_from)
    return folded_weights


def packed(
    texts: Sequence[np.ndarray], length: int = _LENGTH, first_segments: Sequence[int] | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Texts in rows, each in the fullest one that has room: token ids, numbers of texts from 1, segments, int [X, L].

    Of a pair, `first_segments` has the number of tokens in segment 0; of other texts, their length.
    """
    open_rows: list[list[int]] = [[] for _ in range(length + 1)]  # by their room
    rows: list[list[int]] = []
    for number, text in enumerate(texts):
        room = next((room for room in range(len(text), length + 1) if open_rows[room]), length)
        if open_rows[room]:
            row = open_rows[room].pop()
        else:
            row = len(rows)
            rows.append([])
        rows[row].append(number)
        if room - len(text) >= _SHORTEST:
            open_rows[room - len(text)].append(row)

    # Texts of 5, 3 and 4 tokens in rows of 8 -> the numbers [1 1 1 1 1 2 2 2] and [1 1 1 1 0 0 0 0].
    ids = np.zeros([len(rows), length], np.int32)
    numbers = np.zeros([len(rows), length], np.int32)
    segments = np.zeros([len(rows), length], np.int32)
    for row, members in enumerate(rows):
        start = 0
        for number_in_row, member in enumerate(members, start=1):
            end = start + len(texts[member])
            ids[row, start:end] = texts[member]
            numbers[row, start:end] = number_in_row
            if first_segments is not None:
                segments[row, start + first_segments[member] : end] = 1
            start = end
    return ids, numbers, segments


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
        scores = {"sst2": 100 * classifier.score(embed(dev_texts), dev_labels)}
        for name, score in real_weights.scores(embed, self._stsb).items():
            scores[f"stsb_{name}"] = round(100 * score, 3)
        return scores


class Program:
    """The teacher, the text and the tasks, on the device."""

    def __init__(self, settings: FoldedSettings):
        import torch

        from albert_tf.formats import pretrained
        from albert_tf.text.tokenizer import Tokenizer
        from lab.fold import in_torch

        self._settings = settings
        self._weights = pretrained.read_weights(settings.teacher)
        self._tokenizer = Tokenizer.from_file(self._weights.vocabulary, **self._weights.cleaning)
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._device_name = torch.cuda.get_device_name() if self._device == "cuda" else "cpu"
        self._tasks = Tasks(settings.data_dir)
        self._text, self._held_out = map(self._rows, ("train.txt", "held_out.txt"))
        self._teacher = in_torch.Encoder(
            self._weights.config, self._weights.arrays, self._device, trained=False
        )

    def _tokens(self, texts: Sequence[str], length: int = _LENGTH) -> list[np.ndarray]:
        """[CLS] text [SEP], with at most `length` tokens."""
        cls = [self._tokenizer.cls_id]
        sep = [self._tokenizer.sep_id]
        ids_of_texts = self._tokenizer.encode_batch(list(texts))
        return [np.concatenate([cls, ids[: length - 2], sep]) for ids in ids_of_texts]

    def _pairs(self, lines: Sequence[str]) -> tuple[list[np.ndarray], list[int]]:
        """[CLS] first [SEP] second [SEP], of lines with a tab, and the number of tokens before the second text."""
        cls = [self._tokenizer.cls_id]
        sep = [self._tokenizer.sep_id]
        firsts, seconds = zip(*(line.split("\t") for line in lines), strict=True)
        ids_of_firsts = self._tokenizer.encode_batch(list(firsts))
        ids_of_seconds = self._tokenizer.encode_batch(list(seconds))
        pairs = []
        first_segments = []
        for first, second in zip(ids_of_firsts, ids_of_seconds, strict=True):
            first = first[: _PAIR_TOKENS // 6]
            second = second[: _PAIR_TOKENS - 3 - len(first)]
            pairs.append(np.concatenate([cls, first, sep, second, sep]))
            first_segments.append(len(first) + 2)
        return pairs, first_segments

    def _rows(self, name: str) -> Any:
        """The texts of a file, with long texts and pairs if a row has room for them, in a random order."""
        from lab.fold import in_torch

        folder = pathlib.Path(self._settings.text_dir)
        length = self._settings.row_tokens
        texts = self._tokens(_lines(folder / name), length)
        first_segments = list(map(len, texts))
        if length > _LENGTH:
            passages = self._tokens(_lines(folder / f"long_{name}"), length)
            pairs, firsts_of_pairs = self._pairs(_lines(folder / f"pairs_{name}"))
            texts += passages + pairs
            first_segments += [*map(len, passages), *firsts_of_pairs]
            order = np.random.default_rng(0).permutation(len(texts))
            texts = [texts[place] for place in order]
            first_segments = [first_segments[place] for place in order]
        ids, numbers, segments = packed(texts, length, first_segments)
        return in_torch.Rows.load(ids, numbers, self._device, segments)

    def scores(self, encoder: Any = None) -> dict[str, float]:
        """Those of a student, or of the teacher."""
        embedder = encoder or self._teacher
        return self._tasks.scores(lambda texts: embedder.embed(self._tokens(texts)))

    def trained(self, size: str, seed: int) -> dict[str, Any]:
        """What is recorded of a size, which is trained and, if --output_dir is given, written."""
        from lab.fold import in_torch

        settings = self._settings
        initial = folded(self._weights, size)
        student = in_torch.Encoder(initial.config, initial.arrays, self._device, trained=True)
        steps = 10**6 if settings.train_minutes else settings.num_train_steps
        weights = {key: getattr(settings, key) for key in ("hidden_weight", "relation_weight")}
        training = in_torch.Training(
            steps=steps,
            rows=settings.rows,
            rate=settings.learning_rate,
            warmup=300 if settings.train_minutes else steps // 12,
            seed=seed,
            seconds=60 * settings.train_minutes,
            optimizer=settings.optimizer,
            kernel_decay=settings.kernel_decay,
            compiles=settings.compiles,
        )
        run = in_torch.Distillation(student, self._teacher, self._text, **weights).run(training)
        if settings.output_dir:
            self._write(initial, student)
        errors = in_torch.Distillation(student, self._teacher, self._held_out).evaluate()
        return {
            "size": size,
            "seed": seed,
            "parameters": sum(array.size for array in initial.arrays.values()),
            "error": errors[f"error_{student.config.num_hidden_layers}"],
            **errors,
            **self.scores(student),
            **run,
            **weights,
            "rows": settings.rows,
            "row_tokens": settings.row_tokens,
            "optimizer": settings.optimizer,
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


def _lines(path: pathlib.Path) -> list[str]:
    return path.read_text().split("\n")[:-1]


def main(settings: FoldedSettings) -> None:
    """Trains every size and seed that is not finished, and adds its numbers to the results."""
    program = Program(settings)
    path = pathlib.Path(settings.results_file)
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
