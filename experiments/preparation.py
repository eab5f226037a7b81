"""What rows share: texts, the vocabulary, records, the development set; each made once for each distinct setting.

Everything lies in the work folder, in folders whose names end in a hash of what they were made of. A lock keeps two
processes from making the same thing at the same time.
"""

import contextlib
import fcntl
import glob
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from albert_tf.errors import UserError
from data_prep import (
    create_intrinsic_eval,
    create_pretraining_data,
    sample_corpus,
    split_sentences,
    text_files,
    train_sentencepiece,
)
from experiments.declarations import Row, Scale

SAMPLE_CORPUS = "sample_corpus"  # instead of a pattern: the text that is on every machine
HELD_OUT = 0.03  # share of a text's documents: for the probes, and for evaluation where there are no passages


def key_of(values: Any) -> str:
    """Eight hexadecimal digits that stand for settings."""
    text = json.dumps(values, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Waits until no other process of this machine works in a folder; made if it does not exist."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, ".lock"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Workspace:
    """The shared data of one scale.

    Args:
      scale: sizes and settings.
      data_dir: folder with text and tasks; "" for none.
      work_dir: where everything is made.
    """

    def __init__(self, scale: Scale, data_dir: str, work_dir: str):
        self.scale = scale
        self.data_dir = data_dir
        self.work_dir = work_dir
        self.folder = os.path.join(work_dir, scale.name)

    def path(self, *parts: str) -> str:
        """A path in the work folder."""
        return os.path.join(self.folder, *parts)

    # --- Text ---

    def text(self, name: str) -> tuple[str, str]:
        """Training text and held-out text, each as files separated by commas.

        Raises:
          UserError: the scale has no such text, or its files are not there.
        """
        sources = self.sources(name)
        patterns = [pattern for pattern in sources if pattern != SAMPLE_CORPUS]
        corpora = [self._split(patterns)] if patterns else []
        if SAMPLE_CORPUS in sources:
            corpora.append(self._sampled())
        trainings, held_outs = zip(*corpora, strict=True)
        return ",".join(trainings), ",".join(held_outs)

    def sources(self, name: str) -> list[str]:
        """What a text is made of: patterns below --data_dir, and `sample_corpus`.

        Raises:
          UserError: the scale has no such text.
        """
        texts = self.scale.texts if self.data_dir else self.scale.fallback_texts
        if name not in texts:
            hint = "" if self.data_dir else "; without --data_dir there is less of it"
            raise UserError(f"scale {self.scale.name}: has no text {name!r}{hint}")
        return list(texts[name])

    def has_text(self, name: str) -> bool:
        """Whether there is such a text."""
        return name in (self.scale.texts if self.data_dir else self.scale.fallback_texts)

    def _split(self, patterns: Sequence[str]) -> tuple[str, str]:
        paths = [os.path.join(self.data_dir, pattern) for pattern in patterns]
        if missing := [path for path in paths if not glob.glob(path)]:
            raise UserError(
                f"--data_dir={self.data_dir}: {missing[0]} is not there, which scale {self.scale.name} names"
            )
        num_bytes = text_files.total_bytes(text_files.expand_paths(",".join(paths)))
        return self._corpus(
            f"files-{key_of([list(patterns), num_bytes])}",
            lambda files: split_sentences.main(
                split_sentences.SplitSettings(
                    input_file=",".join(paths), invalid_utf8="replace", **files
                )
            ),
        )

    def _sampled(self) -> tuple[str, str]:
        return self._corpus(
            SAMPLE_CORPUS,
            lambda files: sample_corpus.main(sample_corpus.SampleSettings(**files)),
        )

    def _corpus(self, name: str, write) -> tuple[str, str]:
        folder = self.path("text", name)
        training, held_out = (os.path.join(folder, f"{part}.txt") for part in ("train", "held_out"))
        with locked(folder):
            if not (os.path.exists(training) and os.path.exists(held_out)):
                files = {"output_file": training, "eval_output_file": held_out}
                write({**files, "eval_fraction": HELD_OUT})
        return training, held_out

    def vocabulary(self) -> str:
        """The SentencePiece model, of the standard text."""
        training, _ = self.text("standard")
        settings = {"input_file": training, **self.scale.vocabulary}
        folder = self.path("vocabulary", key_of(settings))
        prefix = os.path.join(folder, "spiece")
        with locked(folder):
            if not os.path.exists(f"{prefix}.model"):
                train_sentencepiece.main(
                    train_sentencepiece.TrainSettings(output_prefix=prefix, **settings)
                )
        return f"{prefix}.model"

    # --- Records ---

    def records(self, row: Row) -> str:
        """The folder of a row's training records."""
        training, _ = self.text(row.text)
        return self._records(training, {**self.scale.data, **row.data}, row.text)

    def probe(self, task: str) -> str:
        """The folder of records of held-out text that a probe of a sentence task is fitted to."""
        _, held_out = self.text("standard")
        others = {"sentence_task": task, "single_segment": "clean", "dupe_factor": 1}
        return self._records(held_out, {**self.scale.data, **others}, "probe")

    def _records(self, text: str, settings: Mapping[str, Any], name: str) -> str:
        values = {"input_file": text, "spm_model_file": self.vocabulary(), **settings}
        task = settings.get("sentence_task", "sop")
        folder = self.path("records", f"{name}-{task}-{key_of(values)}")
        with locked(folder + ".lock"):  # beside it: the folder holds records alone
            create_pretraining_data.create_pretraining_data(
                create_pretraining_data.PretrainingDataSettings(output_dir=folder, **values)
            )
        return folder

    def intrinsic(self) -> str:
        """The folder of the development set: passages of SQuAD and RACE, or held-out text where they are not there."""
        kept = ("max_seq_length", "max_predictions_per_seq", "masked_lm_prob", "do_lower_case")
        values = {name: self.scale.data[name] for name in kept if name in self.scale.data}
        values.update({"spm_model_file": self.vocabulary(), **self.passages()})
        folder = self.path("intrinsic", key_of(values))
        with locked(folder):
            if not os.path.exists(os.path.join(folder, "sop", "metadata.json")):
                create_intrinsic_eval.create_intrinsic_eval(
                    create_intrinsic_eval.IntrinsicSettings(output_dir=folder, **values)
                )
        return folder

    def passages(self) -> dict[str, str]:
        """What the development set is made of, as settings of data_prep.create_intrinsic_eval."""
        squad = os.path.join(self.data_dir, "squad", "dev-v1.1.json")
        race = os.path.join(self.data_dir, "race", "dev")
        if self.data_dir and os.path.exists(squad) and os.path.isdir(race):
            return {"squad_file": squad, "race_dir": race}
        return {"input_file": self.text("standard")[1]}

    # --- Data of tasks ---

    def find(self, *patterns: str) -> str:
        """The first path below --data_dir that matches one of some patterns; "" if there is none."""
        for pattern in patterns if self.data_dir else ():
            if found := sorted(glob.glob(os.path.join(self.data_dir, pattern))):
                return found[0]
        return ""

    def squad_files(self, version: str) -> dict[str, str]:
        """SQuAD's files as settings of run_squad.py; {} if there are none.

        Where the training file is missing, the development file is cut by article: three quarters train.
        """
        train = self.find(f"squad/train-v{version}.json")
        dev = self.find(f"squad/dev-v{version}.json", f"squad/dev-v{version}*.json")
        if train and dev or not dev:
            return {"train_file": train, "eval_file": dev} if dev else {}
        folder = self.path("squad", key_of([dev, version]))
        paths = {part: os.path.join(folder, f"{part}.json") for part in ("train", "dev")}
        with locked(folder):
            if not os.path.exists(paths["dev"]):
                _cut_by_article(dev, paths)
        return {"train_file": paths["train"], "eval_file": paths["dev"]}


def _cut_by_article(source: str, paths: Mapping[str, str]) -> None:
    with open(source, encoding="utf-8") as file:
        values = json.load(file)
    articles = values["data"]
    cut = len(articles) * 3 // 4
    for part, kept in (("train", articles[:cut]), ("dev", articles[cut:])):
        with open(paths[part], "w", encoding="utf-8") as file:
            json.dump({**values, "data": kept}, file)
