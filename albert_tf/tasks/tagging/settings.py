"""Settings of tagging."""

import dataclasses
from typing import ClassVar

from albert_tf.core.settings import changed, setting
from albert_tf.tasks.settings import TaughtConfig, files_setting

FIRST, LAST = "first", "last"
PREFIXED, BARE, WORDS = "prefixed", "bare", "words"
TAG_FORM = "tag_form"  # among a model's settings: how its tags are written (`tag_forms`)
SEPARATORS = {"space": " ", "none": ""}  # between words


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggingConfig(TaughtConfig):
    """Named entities, or other labels of words, in files with a word in each line."""

    predictions_endings: ClassVar[tuple[str, ...]] = (".conll", ".txt", ".tsv", ".jsonl")
    train_file: str = files_setting(
        "File to train on, in the format of CoNLL: a word and its tag on each line, an empty line between sentences; or"
        " a table (.jsonl, .parquet, a folder of datasets) with lists of words and tags."
    )
    eval_file: str = files_setting("File to evaluate on, in the same format.")
    predict_file: str = files_setting("File to tag, with or without tags.")
    token_column: str = setting(
        FIRST,
        "Column of the words: `first`, `last`, a number from 1, or its name in the file's first line.",
        of_model="default",
    )
    tag_column: str = setting(
        LAST,
        "Column of the tags: `first`, `last`, a number from 1, or its name in the first line.",
        of_model="default",
    )
    tag_scheme: str = setting(
        PREFIXED,
        "What the tags are: prefixed with letters, such as B-LOC (IOB1, IOB2, BIOES, BILOU, BMES; if all tags of a file"
        " are written as LOC-B, b-loc or B_LOC, they are read and written back so); bare types, such as LOC, where"
        " neighbors of one type are one entity; or labels of single words, such as parts of speech.",
        choices=(PREFIXED, BARE, WORDS),
        of_model="fixed",
    )
    class_weights: str = setting(
        "",
        "Weights of the tags in the loss: `balanced` by their frequency among the words of the training data.",
        choices=("", "balanced"),
    )
    word_separator: str = setting(
        "space",
        "Text between the words of a sentence: `none` for text without spaces, such as Chinese.",
        choices=tuple(SEPARATORS),
        of_model="fixed",
    )
    max_seq_length: int = changed(
        TaughtConfig,
        "max_seq_length",
        128,
        help="Maximum number of tokens of a window; a longer sentence is read in several windows.",
    )
    doc_stride: int = setting(
        64, "Tokens from the start of a window to that of the next.", minimum=1, of_model="fixed"
    )

    def __post_init__(self):
        super().__post_init__()
        for name in ("token_column", "tag_column"):
            column = getattr(self, name)
            is_number = column.lstrip("-").isdecimal()
            if not column.strip() or (is_number and int(column) < 1):
                reason = f"must be first, last, a number from 1, or a name, got {column!r}"
                self.refuse(name, reason)
        if self.token_column == self.tag_column:
            reason = f"={self.tag_column} is --token_column, too: a model would read its answers"
            self.refuse("tag_column", reason)
