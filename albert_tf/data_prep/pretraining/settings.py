"""Settings of create_pretraining_data."""

import dataclasses
import os
from collections.abc import Mapping, Set
from typing import Any

from albert_tf.core.settings import LARGEST_SEED, Settings, setting
from albert_tf.data.pretraining_examples import SENTENCE_TASKS
from albert_tf.data.record_formats import FORMATS
from albert_tf.data_prep.corpus import invalid_utf8_setting
from albert_tf.data_prep.engines.settings import EngineSettings
from albert_tf.tasks.settings import LONGEST_SEQUENCE
from albert_tf.text.settings import TextSettings, VocabularySettings
from albert_tf.text.word_starts import WORD_START_RULES

_LENGTH = {"minimum": 1, "maximum": LONGEST_SEQUENCE}
MAX_SHARDS = 99_999  # the names of files have five digits


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingDataSettings(VocabularySettings, TextSettings, EngineSettings):
    """Which text becomes records, and how (original create_pretraining_data.py:31-92)."""

    input_file: str = setting(
        "",
        "Text, one sentence per line and a blank line between documents: files, globs or folders, separated by"
        " commas.",
        required=True,
        input_path=True,
        changes_results=False,
    )
    output_dir: str = setting("", "Folder for the records.", required=True, changes_results=False)
    do_whole_word_mask: bool = setting(True, "Whether whole words are masked, not single tokens.")
    favor_shorter_ngram: bool = setting(
        True,
        "Whether spans of n words have probabilities proportional to 1/n; false reverses them.",
    )
    sentence_task: str = setting(
        "sop",
        "sop: half of the pairs are swapped; nsp: half of the B are from another document; none: all in order.",
        choices=SENTENCE_TASKS,
    )
    single_segment: str = setting(
        "faithful",
        "How a lone sentence becomes a pair: faithful takes B from another document, with label 1, even with sop, as"
        " the original does; clean splits the sentence.",
        choices=("faithful", "clean"),
    )
    word_start_rule: str = setting(
        "original",
        "Which tokens start a word: original is for English, marker for other languages; with a WordPiece vocabulary,"
        " both mean all tokens but those that begin with ##.",
        choices=WORD_START_RULES,
    )
    max_seq_length: int = setting(
        512, "Maximum number of tokens in an example.", minimum=5, maximum=LONGEST_SEQUENCE
    )
    ngram: int = setting(3, "Maximum number of words in a masked span.", **_LENGTH)
    max_predictions_per_seq: int = setting(
        20, "Maximum number of masked tokens in an example.", **_LENGTH
    )
    random_seed: int = setting(
        12345, "Seed of pairs, masks and order.", minimum=0, maximum=LARGEST_SEED
    )
    dupe_factor: int = setting(
        40,
        "Passes through the text, each with different pairs and masks; the default is 1 with --masking=dynamic.",
        minimum=1,
        maximum=100_000,
    )
    record_format: str = setting(
        next(iter(FORMATS)),
        "; ".join(f"{name}: {record_format.help}" for name, record_format in FORMATS.items()) + ".",
        choices=tuple(FORMATS),
    )
    masking: str = setting(
        "static",
        "static: tokens are masked here; dynamic: tokens are masked during training, differently in each epoch, by the"
        " settings given here.",
        choices=("static", "dynamic"),
    )
    masked_lm_prob: float = setting(0.15, "Share of tokens that are masked.", minimum=0, maximum=1)
    short_seq_prob: float = setting(
        0.1, "Probability that a document is cut into shorter examples.", minimum=0, maximum=1
    )
    num_shards: int = setting(
        0,
        "Files in --output_dir, each of which a worker holds in memory; 0 chooses the number: about 128 MiB of full"
        " records per file, or for a small text up to 64 smaller files, so that all processes have work.",
        minimum=0,
        maximum=MAX_SHARDS,
    )
    invalid_utf8: str = invalid_utf8_setting()

    def __post_init__(self):
        super().__post_init__()
        if self.masking not in FORMATS[self.record_format].masking:
            able = [name for name in FORMATS if self.masking in FORMATS[name].masking]
            self.refuse("masking", f"={self.masking} needs --record_format={' or '.join(able)}")

    def check_with(self, others: Mapping[type[Settings], Settings]) -> None:
        """Checks that a vocabulary is given."""
        self.require_vocabulary()

    @property
    def work_folder(self) -> str:
        """The folder of a run's intermediate files."""
        return os.path.join(self.output_dir, ".unfinished")

    def shard_path(self, index: int, num_shards: int) -> str:
        """The path of a shard."""
        name = f"pretraining-{index:05d}-of-{num_shards:05d}.tfrecord"
        return os.path.join(self.output_dir, name)


def dynamic_defaults(flags: Mapping[str, Any], given: Set[str] = frozenset()) -> Mapping[str, Any]:
    """Defaults with --masking=dynamic: masks differ in each epoch without several passes through the text."""
    return {"dupe_factor": 1} if flags["masking"] == "dynamic" else {}
