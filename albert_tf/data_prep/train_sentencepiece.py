"""Trains a SentencePiece model with ALBERT's special tokens.

    albert-tf data train_sentencepiece --input_file=corpus.txt --output_prefix=30k-clean

Writes `<prefix>.model`, with the settings that the released 30k-clean.model records.

The corpus is read once. Only the sampled sentences are in memory (`--input_sentence_size`; 10 million of 130 bytes are
about 2 GB).
"""

import dataclasses
import io
import time
import unicodedata
from collections.abc import Iterator, Sequence

import sentencepiece

from albert_tf.core import files, flags
from albert_tf.core.errors import UserError
from albert_tf.core.settings import LARGEST_INT64, setting
from albert_tf.data_prep import corpus
from albert_tf.text.settings import TextSettings
from albert_tf.text.tokenizer import clean_text

PROGRAM = "train_sentencepiece"

# The first tokens of the vocabulary, in order (README.md of the original; 30k-clean.model).
META_TOKENS = ("<pad>", "<unk>")
CONTROL_SYMBOLS = ("[CLS]", "[SEP]", "[MASK]")
USER_DEFINED_SYMBOLS = ("(", ")", '"', "-", ".", "–", "£", "€")
FIRST_TOKENS = META_TOKENS + CONTROL_SYMBOLS + USER_DEFINED_SYMBOLS

# The trainer adds up its counts by thread: a fixed number of threads gives the same result on every machine.
NUM_THREADS = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainSettings(TextSettings):
    """The corpus, and the size of the vocabulary."""

    input_file: str = setting(
        "",
        "Text files with one sentence per line (files, globs or folders, separated by commas).",
        required=True,
        input_path=True,
    )
    output_prefix: str = setting("", "Path of the written file without .model.", required=True)
    vocab_size: int = setting(30000, "Number of tokens.", minimum=len(FIRST_TOKENS) + 1)
    character_coverage: float = setting(
        0.99995, "Share of the text's characters in the vocabulary.", minimum=0.9, maximum=1
    )
    input_sentence_size: int = setting(
        10**7, "Sentences to train on, sampled from more.", minimum=1, maximum=LARGEST_INT64
    )
    invalid_utf8: str = corpus.invalid_utf8_setting()

    def __post_init__(self):
        super().__post_init__()
        if self.output_prefix.endswith("/"):
            self.refuse("output_prefix", "must end with the name of a file")


def main(settings: TrainSettings) -> None:
    """Trains a model on the corpus and writes it."""
    start = time.monotonic()
    output_file = f"{settings.output_prefix}.model"
    paths = corpus.expand_paths(settings.input_file, not_among=[output_file])
    reader = corpus.LineReader(settings.invalid_utf8)
    with files.OutputFile(output_file) as file:  # opened first: nobody else writes it
        file.write(train(_sentences(paths, reader, settings), settings))
    reader.print_report(PROGRAM)
    seconds = f"{time.monotonic() - start:.1f} s"
    corpus.print_note(PROGRAM, f"{settings.vocab_size:,} tokens in {output_file}; {seconds}")


def _sentences(
    paths: Sequence[str], reader: corpus.LineReader, settings: TrainSettings
) -> Iterator[str]:
    """The sentences of the corpus, cleaned."""
    num_sentences = num_marks = num_characters = 0
    with corpus.show_progress(PROGRAM, corpus.total_bytes(paths), "B") as progress:
        for path in paths:
            for line in reader.read(path):
                progress.update(reader.num_bytes - progress.n)
                if line and not line.isspace():
                    num_sentences += 1
                    num_characters += len(line)
                    num_marks += 0 if line.isascii() or settings.keep_accents else marks_in(line)
                    yield clean_text(line, **settings.cleaning)
    if not num_sentences:
        raise UserError(f"--input_file={settings.input_file}: no sentence there, only blank lines")
    corpus.print_note(PROGRAM, f"training on {num_sentences:,} sentences")
    if num_marks > num_characters / 1000:
        corpus.print_note(
            PROGRAM,
            f"{num_marks:,} of {num_characters:,} characters lose accents or marks (as in ä, が, أ);"
            " --keep_accents keeps them, here and in all later programs",
        )


def marks_in(text: str) -> int:
    """The number of accents and other marks that cleaning removes from a text."""
    return sum(map(bool, map(unicodedata.combining, unicodedata.normalize("NFD", text))))


def train(sentences: Iterator[str], settings: TrainSettings) -> bytes:
    """Trains a model on cleaned sentences as the released one was trained; returns the content of its file.

    Sentences of more than 4,192 bytes are left out, the trainer's default. A UserError if the corpus is too small for
    this vocabulary size, or has more characters than the vocabulary can hold.

    Source: README.md of the original ("SentencePiece"); trainer_spec and normalizer_spec of 30k-clean.model.
    """
    model = io.BytesIO()
    reading_errors: list[Exception] = []
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_remember_error(sentences, reading_errors),
            model_writer=model,
            model_type="unigram",
            vocab_size=settings.vocab_size,
            character_coverage=settings.character_coverage,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            control_symbols=list(CONTROL_SYMBOLS),
            user_defined_symbols=list(USER_DEFINED_SYMBOLS),
            num_threads=NUM_THREADS,
            input_sentence_size=settings.input_sentence_size,
            shuffle_input_sentence=True,  # sampled at random; a smaller corpus stays in its order
            minloglevel=2,  # errors alone
        )
    except RuntimeError as error:
        if reading_errors:
            raise reading_errors[0] from None
        # Its message names the file and line of its code first.
        reason = " ".join(str(error).rpartition("] ")[2].split())
        raise UserError(f"--vocab_size={settings.vocab_size}: {reason}") from None
    return model.getvalue()


def _remember_error(sentences: Iterator[str], errors: list[Exception]) -> Iterator[str]:
    """Keeps an error of the iterator, because the trainer raises another error that contains its text."""
    try:
        yield from sentences
    except Exception as error:
        errors.append(error)
        raise


run = flags.program(main, TrainSettings, description=__doc__)
