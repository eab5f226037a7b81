"""Data that rows share: texts, vocabulary, records, development set; made once for each combination of settings.

All data is in the work folder, in folders named by a hash of their settings. A lock prevents two processes from making
the same data at the same time. The source files of each text are recorded. A --data_dir with other files is an error,
because runs are named by the patterns of their texts, so that runs on different files would be mixed up.
"""

import functools
import glob
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from albert_tf.core import files, locks
from albert_tf.core.errors import UserError
from albert_tf.data.pretraining_examples import SENTENCE_TASKS
from albert_tf.data_prep import corpus, sample_corpus, split_sentences, train_sentencepiece
from albert_tf.data_prep.pretraining.make_records import create_pretraining_data
from albert_tf.data_prep.pretraining.settings import PretrainingDataSettings
from lab.experiments import development_set
from lab.experiments.declarations import SAMPLE_CORPUS, Row, Scale

# Share of a text's documents, for probes, and for evaluation if there are no passages.
HELD_OUT = 0.03


def key_of(values: Any) -> str:
    """A hash of settings, eight hexadecimal digits."""
    text = json.dumps(values, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


locked = functools.partial(locks.locked, wait=True)


class Workspace:
    """The shared data of one scale; `data_dir` is "" if there is none."""

    def __init__(self, scale: Scale, data_dir: str, work_dir: str):
        self.scale = scale
        self.data_dir = data_dir
        self.work_dir = work_dir
        self.folder = os.path.join(work_dir, scale.name)
        self.texts = scale.texts if data_dir else scale.fallback_texts

    def path(self, *parts: str) -> str:
        """A path in the work folder."""
        return os.path.join(self.folder, *parts)

    # --- Text ---

    def text(self, name: str) -> tuple[str, str]:
        """Training text and held-out text, each as files separated by commas."""
        sources = self.sources(name)
        patterns = [pattern for pattern in sources if pattern != SAMPLE_CORPUS]
        patterns_here = [os.path.join(self.data_dir, pattern) for pattern in patterns]
        missing = [path for path in patterns_here if not glob.glob(path)]
        if missing:
            raise UserError(
                f"--data_dir={self.data_dir}: {missing[0]} is not there, which scale {self.scale.name} names"
            )
        paths = corpus.expand_paths(",".join(patterns_here))
        # Sizes of the files by their names below --data_dir; the sample corpus has no size.
        described: dict[str, int | None] = {
            os.path.relpath(path, self.data_dir): os.path.getsize(path) for path in paths
        }
        if SAMPLE_CORPUS in sources:
            described[SAMPLE_CORPUS] = None
        self._check_sources(name, described, f"{name}-{key_of(sources)}-sources.json")
        corpora = []
        if patterns:
            folder = f"files-{key_of([patterns, corpus.total_bytes(paths)])}"
            flags = {"input_file": ",".join(patterns_here), "invalid_utf8": "replace"}
            settings = functools.partial(split_sentences.SplitSettings, **flags)
            corpora.append(self._corpus(folder, split_sentences.main, settings))
        if SAMPLE_CORPUS in sources:
            corpora.append(
                self._corpus(SAMPLE_CORPUS, sample_corpus.main, sample_corpus.SampleSettings)
            )
        trainings, held_outs = zip(*corpora, strict=True)
        return ",".join(trainings), ",".join(held_outs)

    def sources(self, name: str) -> list[str]:
        """The sources of a text: patterns below --data_dir, and `sample_corpus`."""
        if name not in self.texts:
            hint = "" if self.data_dir else "; without --data_dir there is less of it"
            raise UserError(f"scale {self.scale.name}: has no text {name!r}{hint}")
        return list(self.texts[name])

    def _check_sources(self, name: str, described: Mapping[str, int | None], record: str) -> None:
        """Records the files of a text; raises an error if the work folder has other files of a text of this name."""
        path = self.path("text", record)
        with locked(self.path("text")):
            if not os.path.exists(path):
                files.write_bytes(path, files.json_bytes(described))
            before = files.read_json(path)
        names = sorted({**before, **described})
        differing = [path for path in names if before.get(path, -1) != described.get(path, -1)]
        if differing:
            raise UserError(
                f"{self.folder}: its text {name!r} was made of other files than --data_dir={self.data_dir} has"
                f" ({differing[0]} for one); choose another --work_dir"
            )

    def _corpus(self, name: str, program: Callable, settings: Callable) -> tuple[str, str]:
        folder = self.path("text", name)
        training = os.path.join(folder, "train.txt")
        held_out = os.path.join(folder, "held_out.txt")
        with locked(folder):
            if not (os.path.exists(training) and os.path.exists(held_out)):
                outputs = {"output_file": training, "eval_output_file": held_out}
                program(settings(**outputs, eval_fraction=HELD_OUT))
        return training, held_out

    def vocabulary(self) -> str:
        """The SentencePiece model; it is trained on the standard text."""
        training, _ = self.text("standard")
        settings = {"input_file": training, **self.scale.vocabulary}
        folder = self.path("vocabulary", key_of(settings))
        prefix = os.path.join(folder, "spiece")
        with locked(folder):
            if not os.path.exists(f"{prefix}.model"):
                settings = train_sentencepiece.TrainSettings(output_prefix=prefix, **settings)
                train_sentencepiece.main(settings)
        return f"{prefix}.model"

    # --- Records ---

    def records(self, row: Row) -> str:
        """The folder of a row's training records."""
        training, _ = self.text(row.text)
        return self._made_records(training, {**self.scale.data, **row.data}, row.text)

    def probe(self, task: str) -> str:
        """The folder of records of held-out text for training the probe of a sentence task."""
        has_passages = bool(self._given_passages())
        held_out = self.text("standard")[1] if has_passages else self._held_out_halves()["probe"]
        of_probe = {
            "sentence_task": task,
            "single_segment": "clean",
            "dupe_factor": 1,
            "record_format": "full",  # the evaluation reads single examples
        }
        return self._made_records(held_out, {**self.scale.data, **of_probe}, "probe")

    def _made_records(self, text: str, settings: Mapping[str, Any], name: str) -> str:
        values = {"input_file": text, "spm_model_file": self.vocabulary(), **settings}
        task = settings.get("sentence_task", "sop")
        folder = self.path("records", f"{name}-{task}-{key_of(values)}")
        # Not inside, because the folder contains only records.
        with locked(folder + ".lock"):
            create_pretraining_data(PretrainingDataSettings(output_dir=folder, **values))
        return folder

    def intrinsic(self) -> str:
        """The folder of the development set: passages of SQuAD and RACE, or held-out text if there are none."""
        names = (
            "max_seq_length",
            "max_predictions_per_seq",
            "masked_lm_prob",
            "do_lower_case",
            "keep_accents",
        )
        values = {name: self.scale.data[name] for name in names if name in self.scale.data}
        values.update({"spm_model_file": self.vocabulary(), **self.passages()})
        folder = self.path("intrinsic", key_of(values))
        metadata = [os.path.join(folder, task, "metadata.json") for task in SENTENCE_TASKS]
        with locked(folder):
            if not all(map(os.path.exists, metadata)):
                settings = development_set.IntrinsicSettings(output_dir=folder, **values)
                development_set.make(settings)
        return folder

    def passages(self) -> dict[str, str]:
        """The sources of the development set, as settings of `development_set`."""
        return self._given_passages() or {"input_file": self._held_out_halves()["dev"]}

    def _given_passages(self) -> dict[str, str]:
        """`passages` from SQuAD and RACE; {} if they are not below --data_dir."""
        squad = self.find("squad/dev-v1.1.json")
        race = self.find("race/dev/")
        return {"squad_file": squad, "race_dir": race.rstrip("/")} if squad and race else {}

    def _held_out_halves(self) -> dict[str, str]:
        """Two texts of alternating held-out documents, because a probe must not be evaluated on its training data."""
        _, held_out = self.text("standard")
        folder = self.path("text", f"halves-{key_of(held_out)}")
        paths = {part: os.path.join(folder, f"{part}.txt") for part in ("dev", "probe")}
        with locked(folder):
            if not all(map(os.path.exists, paths.values())):
                _cut_by_document(held_out.split(","), paths)
        return paths

    # --- Data of tasks ---

    def find(self, *patterns: str) -> str:
        """The first path below --data_dir that matches one of the patterns; "" if there is none."""
        for pattern in patterns if self.data_dir else ():
            if paths := sorted(glob.glob(os.path.join(self.data_dir, pattern))):
                return paths[0]
        return ""

    def squad_files(self, version: str) -> dict[str, str]:
        """SQuAD's files as settings of run_squad.py; {} if there are none.

        If the training file is missing, the development file is cut between articles; three quarters of it are for
        training.
        """
        train = self.find(f"squad/train-v{version}.json")
        dev = self.find(f"squad/dev-v{version}.json", f"squad/dev-v{version}*.json")
        if not dev:
            return {}
        if train:
            return {"train_file": train, "eval_file": dev}
        folder = self.path("squad", key_of([dev, version]))
        paths = {part: os.path.join(folder, f"{part}.json") for part in ("train", "dev")}
        with locked(folder):
            if not os.path.exists(paths["dev"]):
                cut_by_article(dev, folder)
        return {"train_file": paths["train"], "eval_file": paths["dev"]}


def _cut_by_document(sources: Sequence[str], paths: Mapping[str, str]) -> None:
    texts = [files.read_bytes(path).decode() for path in sources]
    documents = [document.strip() for text in texts for document in text.split("\n\n")]
    if len(documents) < len(paths):
        raise UserError(
            f"{sources[0]}: expected {len(paths)} held-out documents or more, for the development set and for the"
            f" probes, got {len(documents)}; give more text, or squad/dev-v1.1.json and race/dev in --data_dir"
        )
    for first, path in enumerate(paths.values()):
        text = "\n\n".join(documents[first :: len(paths)]) + "\n"
        files.write_bytes(path, text.encode())


def cut_by_article(source: str, folder: str) -> None:
    """Cuts a file of SQuAD into train.json, three quarters of the articles, and dev.json."""
    values = files.read_json(source)
    cut = len(values["data"]) * 3 // 4
    parts = {"train.json": values["data"][:cut], "dev.json": values["data"][cut:]}
    contents = {
        name: json.dumps({**values, "data": articles}).encode() for name, articles in parts.items()
    }
    files.write_files(folder, contents)
