"""Settings of the vocabulary and of its text, for every program that turns text into token ids."""

import dataclasses
from typing import Any

from absl import logging

from albert_tf.core.settings import Settings, setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularySettings(Settings):
    """The vocabulary: a SentencePiece model or a WordPiece file."""

    spm_model_file: str = setting(
        "", "SentencePiece model of the vocabulary.", input_path=True, changes_results=False
    )
    vocab_file: str = setting(
        "",
        "WordPiece vocabulary (vocab.txt) instead of --spm_model_file; the released Chinese models have one. Beside"
        " --spm_model_file, it is not read, as in the original.",
        input_path=True,
        changes_results=False,
    )

    def __post_init__(self):
        super().__post_init__()
        if self.spm_model_file and self.vocab_file:
            # The commands of the original's README give both, and it reads the SentencePiece model alone.
            logging.log_first_n(
                logging.WARNING,
                "--vocab_file=%s is not read: --spm_model_file has its own vocabulary",
                1,
                self.vocab_file,
            )

    @property
    def vocabulary_file(self) -> str:
        """The file that is given, "" if none is; its content tells which kind it is."""
        return self.spm_model_file or self.vocab_file

    def require_vocabulary(self, reason: str = "") -> None:
        """Raises a UserError if no file is given; the reason follows "is required" in the message."""
        if not self.vocabulary_file:
            self.refuse("spm_model_file", f"or --vocab_file is required{reason}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSettings(Settings):
    """How text is cleaned before it is tokenized."""

    do_lower_case: bool = setting(
        True, "Whether text is lower-cased; false for a cased model.", of_model="fixed"
    )
    keep_accents: bool = setting(
        False,
        "Whether accents are kept, for languages that need them. The original removes them; with a WordPiece"
        " vocabulary, it does so only if it lower-cases. If accents are kept, so are compatibility forms.",
        of_model="fixed",
    )

    @property
    def cleaning(self) -> dict[str, Any]:
        """The settings as arguments of `Tokenizer`."""
        return {"do_lower_case": self.do_lower_case, "keep_accents": self.keep_accents}
