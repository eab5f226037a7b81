"""Turns passages of SQuAD and RACE into the paper's development set.

The paper measures what it calls intrinsic performance on a development set made from the development sets of SQuAD and
RACE "using the same procedure" as the pretraining data (section 4.1). A passage is a document, its sentences are split
like those of the corpus, and `create_pretraining_data` makes three folders of records from the same passages:

    none/   pairs in order: for masked LM
    nsp/    half of the B are from another passage
    sop/    half of the pairs are swapped

Two settings differ from the corpus' records. A lone sentence is split before a word, as with --single_segment=clean, so
that no swapped pair comes from another passage. And `short_seq_prob` is 0, not 0.1: in training, some documents are cut
into shorter examples so that the model also sees short input, while here every example is as long as its passage
allows.
"""

import dataclasses
import glob
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping

from albert_tf.core import files
from albert_tf.core.errors import UserError
from albert_tf.core.locks import locks_output_dir
from albert_tf.core.settings import Settings, changed, setting
from albert_tf.data.pretraining_examples import SENTENCE_TASKS
from albert_tf.data_prep.corpus import CorpusSettings, corpus_writer, print_note
from albert_tf.data_prep.pretraining.make_records import create_pretraining_data
from albert_tf.data_prep.pretraining.settings import PretrainingDataSettings
from albert_tf.data_prep.sentences import split_paragraph
from albert_tf.tasks.squad.questions import read_squad
from albert_tf.text.settings import TextSettings, VocabularySettings

TEXT_FILE = "passages.txt"


@dataclasses.dataclass(frozen=True, kw_only=True)
class IntrinsicSettings(VocabularySettings, TextSettings):
    """Which passages, and how they become examples."""

    squad_file: str = setting("", "SQuAD's JSON file, of any version.", input_path=True)
    race_dir: str = setting(
        "", "Folder of RACE's passages, such as RACE/dev; subfolders are searched.", input_path=True
    )
    input_file: str = setting(
        "",
        "Other text instead of passages, one sentence per line and a blank line between documents.",
        input_path=True,
    )
    output_dir: str = setting(
        "", "Folder for the text and the three folders of records.", required=True
    )
    max_seq_length: int = changed(PretrainingDataSettings, "max_seq_length", 512)
    max_predictions_per_seq: int = changed(PretrainingDataSettings, "max_predictions_per_seq", 20)
    masked_lm_prob: float = changed(PretrainingDataSettings, "masked_lm_prob", 0.15)

    def __post_init__(self):
        super().__post_init__()
        if bool(self.squad_file or self.race_dir) == bool(self.input_file):
            self.refuse("squad_file", "and --race_dir, or --input_file, must be given")

    def check_with(self, others: Mapping[type[Settings], Settings]) -> None:
        """Checks that a vocabulary is given."""
        self.require_vocabulary()


@locks_output_dir
def make(settings: IntrinsicSettings) -> dict[str, int]:
    """Makes the three folders of records, or resumes a run; returns the number of examples by folder."""
    text = settings.input_file
    if not text:
        text = os.path.join(settings.output_dir, TEXT_FILE)
        write_passages(settings, text)
    names = set(settings.names()) & set(PretrainingDataSettings.names())
    values = {name: getattr(settings, name) for name in names}
    values |= {"input_file": text, "single_segment": "clean", "short_seq_prob": 0.0}
    values |= {"dupe_factor": 1, "record_format": "full"}  # each example's results are compared
    num_examples = {}
    for task in SENTENCE_TASKS:
        values |= {"sentence_task": task, "output_dir": os.path.join(settings.output_dir, task)}
        metadata, _ = create_pretraining_data(PretrainingDataSettings(**values))
        num_examples[task] = metadata["counts"]["examples"]
    return num_examples


def write_passages(settings: IntrinsicSettings, path: str) -> None:
    """Writes the passages as text, one sentence per line; passages with fewer than two sentences are left out."""
    number = 0
    with corpus_writer(CorpusSettings(output_file=path)) as writer:
        for passage in _passages(settings):
            paragraphs = map(split_paragraph, passage.splitlines())
            sentences = list(itertools.chain.from_iterable(paragraphs))
            if len(sentences) > 1:
                writer.write(str(number), sentences)
            number += 1
    print_note("development_set", f"{number:,} passages: {writer.training} in {path}")


def _passages(settings: IntrinsicSettings) -> Iterator[str]:
    if settings.squad_file:
        yield from squad_passages(settings.squad_file)
    if settings.race_dir:
        yield from race_passages(settings.race_dir)


def squad_passages(path: str) -> Iterable[str]:
    """The contexts in a SQuAD file, without repetitions."""
    questions = read_squad(path, version="2.0", flag="squad_file", need_answers=False)
    return dict.fromkeys(question.context for question in questions)


def race_passages(folder: str) -> Iterator[str]:
    """The articles in a folder of RACE, in the order of their files' paths."""
    paths = sorted(glob.glob(os.path.join(glob.escape(folder), "**", "*.txt"), recursive=True))
    if not paths:
        raise UserError(f"--race_dir={folder}: no *.txt files there")
    for path in paths:
        article = files.read_json(path).get("article")
        if not isinstance(article, str):
            raise UserError(f"{path}: expected RACE's JSON with an article")
        yield article
