"""Trains a SentencePiece model with ALBERT's special tokens.

    albert-tf data train_sentencepiece --input_file=corpus.txt --output_prefix=30k-clean

Writes `<prefix>.model`, with the settings that the released 30k-clean.model records.

Only the sampled sentences are in memory (`--input_sentence_size`; 10 million of 130 bytes are about 2 GB), whatever the
length of the lines: a line of more than 4,192 bytes counts as several sentences. The corpus is read once, and a second
time if its words contain invisible characters, such as the joiner of Persian: joiners are kept, others removed.
"""

import dataclasses
import functools
import io
import os
import re
import tempfile
import time
import unicodedata
from collections.abc import Iterator, Sequence

import sentencepiece

from albert_tf.core import files, flags
from albert_tf.core.errors import UserError
from albert_tf.core.program import Program
from albert_tf.core.settings import LARGEST_INT64, setting
from albert_tf.data_prep import corpus, normalization
from albert_tf.text.cleaning import clean_text
from albert_tf.text.settings import TextSettings
from albert_tf.text.word_starts import MARKER

PROGRAM = "train_sentencepiece"

# The first tokens of the vocabulary, in order (README.md of the original; 30k-clean.model).
META_TOKENS = ("<pad>", "<unk>")
CONTROL_SYMBOLS = ("[CLS]", "[SEP]", "[MASK]")
USER_DEFINED_SYMBOLS = ("(", ")", '"', "-", ".", "–", "£", "€")
FIRST_TOKENS = META_TOKENS + CONTROL_SYMBOLS + USER_DEFINED_SYMBOLS

# The trainer adds up its counts by thread: a fixed number of threads gives the same result on every machine.
NUM_THREADS = 16

# What the trainer leaves out without a message: longer sentences (its default), and sentences with its own sign, "▅".
MOST_SENTENCE_BYTES = 4192
_SIGN_OF_TRAINER = "\u2585"

LEAST_SHARE = 0.9  # of the text; below, a warning names the flag
_BYTE_TOKEN = re.compile("<0x[0-9A-Fa-f]{2}>")


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
        10**7, "Sentences to train on, sampled from more.", minimum=101, maximum=LARGEST_INT64
    )
    user_defined_symbols: str = setting(
        "",
        "Tokens that are never cut, separated by commas, such as @@ or words of a field; they are cleaned like text.",
    )
    required_chars: str = setting(
        "", "Characters that get a token even if they are rare, such as Ωµ; cleaned like text."
    )
    byte_fallback: bool = setting(
        False,
        "Whether an unknown character becomes the bytes of its UTF-8, of 256 further tokens, not the unknown token.",
    )
    invalid_utf8: str = corpus.invalid_utf8_setting()

    def __post_init__(self):
        super().__post_init__()
        if self.output_prefix.endswith("/"):
            self.refuse("output_prefix", "must end with the name of a file")
        for given, symbol in zip(self._given_symbols, self.symbols, strict=True):
            if reason := _why_no_symbol(given, symbol):
                self.refuse("user_defined_symbols", f"={given}: {reason}")
        if self.required_chars and not self.characters:
            self.refuse("required_chars", f"={self.required_chars}: nothing is left after cleaning")

    @property
    def _given_symbols(self) -> list[str]:
        return [symbol.strip() for symbol in self.user_defined_symbols.split(",") if symbol.strip()]

    @functools.cached_property
    def symbols(self) -> list[str]:
        """The tokens of --user_defined_symbols as they are in a cleaned text."""
        return [clean_text(symbol, **self.cleaning) for symbol in self._given_symbols]

    @functools.cached_property
    def characters(self) -> str:
        """The characters of --required_chars as they are in a cleaned and normalized text, each once."""
        if not self.required_chars:
            return ""
        text = normalization.normalized(clean_text(self.required_chars, **self.cleaning))
        return "".join(dict.fromkeys("".join(text.split())))


def _why_no_symbol(given: str, symbol: str) -> str:
    """Why a token, given and cleaned, cannot be a symbol; "" if it can."""
    if given in META_TOKENS + CONTROL_SYMBOLS:
        return "is a special token, which is never found in a text"
    if _BYTE_TOKEN.fullmatch(given):
        return "is the name of a byte"
    if not symbol:
        return "nothing is left after cleaning"
    if symbol.split() != [symbol] or MARKER in symbol or _SIGN_OF_TRAINER in symbol:
        return f"must not contain white space, {MARKER} or {_SIGN_OF_TRAINER}"
    if (normal := normalization.normalized(symbol)) != symbol:
        hint = f"in a text, it would be {normal!r}"
        return f"{hint}; give that, or --keep_accents (for Korean)"
    return ""


class _InvisibleCharactersError(Exception):
    """The corpus has characters for which the rules of the released model are wrong."""


def main(settings: TrainSettings) -> str:
    """Trains a model on the corpus, writes it, and returns the path of the file."""
    start = time.monotonic()
    output_file = f"{settings.output_prefix}.model"
    paths = corpus.expand_paths(settings.input_file, not_among=[output_file])
    with files.OutputFile(output_file) as file:  # opened first: nobody else writes it
        file.write(_model_of_corpus(paths, settings))
    seconds = f"{time.monotonic() - start:.1f} s"
    corpus.print_note(PROGRAM, f"{settings.vocab_size:,} tokens in {output_file}; {seconds}")
    return output_file


def _model_of_corpus(paths: Sequence[str], settings: TrainSettings) -> bytes:
    """The model of the files' text, with the rules of the released model wherever these are right."""
    reader = corpus.LineReader(settings.invalid_utf8)
    of_flags = "".join([*settings.symbols, settings.characters])
    try:
        if normalization.needs_rules(of_flags):
            raise _InvisibleCharactersError
        sentences = _sentences(paths, reader, settings, stop_at_invisible=True)
        model_proto = train(sentences, settings)
    except _InvisibleCharactersError:
        kept = "joiners (U+200C, U+200D) are kept, other invisible characters in words removed"
        corpus.print_note(PROGRAM, f"{kept} (docs/guides/other_languages.md)")
        reader = corpus.LineReader(settings.invalid_utf8)
        sentences = _sentences(paths, reader, settings, stop_at_invisible=False)
        model_proto = _train_with_joiners(sentences, settings)
    reader.print_report(PROGRAM)
    return model_proto


def _train_with_joiners(sentences: Iterator[str], settings: TrainSettings) -> bytes:
    """`train` with the rules of `normalization`."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rules.tsv")
        files.write_bytes(path, normalization.rules_table())
        model_proto = train(sentences, settings, normalization_rule_tsv=path)
    return normalization.named(model_proto)


def _sentences(
    paths: Sequence[str],
    reader: corpus.LineReader,
    settings: TrainSettings,
    stop_at_invisible: bool,
) -> Iterator[str]:
    """The sentences of the corpus, cleaned, none longer than the trainer reads."""
    num_sentences = num_long_lines = num_marks = num_characters = 0
    with corpus.show_progress(PROGRAM, corpus.total_bytes(paths), "B") as progress:
        for path in paths:
            line_sentences = 0  # of the line so far, which may come in pieces
            for piece in reader.read_pieces(path):
                progress.update(reader.num_bytes - progress.n)
                text = piece.text
                if text and not text.isspace():
                    if stop_at_invisible and normalization.needs_rules(text):
                        raise _InvisibleCharactersError
                    num_characters += len(text)
                    num_marks += 0 if text.isascii() or settings.keep_accents else marks_in(text)
                    for sentence in divided(_trainable(text, settings)):
                        num_sentences += 1
                        line_sentences += 1
                        yield sentence
                if piece.ends_line:
                    num_long_lines += line_sentences > 1
                    line_sentences = 0
    if not num_sentences:
        raise UserError(f"--input_file={settings.input_file}: no sentence there, only blank lines")
    _print_size(num_sentences, num_long_lines, settings)
    if num_marks > num_characters / 1000:
        corpus.print_note(
            PROGRAM,
            f"{num_marks:,} of {num_characters:,} characters lose accents or marks (as in ä, が, أ);"
            " --keep_accents keeps them, here and in all later programs",
        )


def _trainable(text: str, settings: TrainSettings) -> str:
    """A cleaned text without the sign of the trainer, for which it would leave the text out."""
    return clean_text(text, **settings.cleaning).replace(_SIGN_OF_TRAINER, " ")


def divided(sentence: str) -> Iterator[str]:
    """The parts of a sentence, each of at most `MOST_SENTENCE_BYTES`, mostly one.

    It is cut at blanks, and a word that is longer between two of its characters.
    """
    if len(sentence) <= MOST_SENTENCE_BYTES // 4:  # a character has at most 4 bytes
        yield sentence
        return
    data = sentence.encode()
    start = 0
    while len(data) - start > MOST_SENTENCE_BYTES:
        end = data.rfind(b" ", start, start + MOST_SENTENCE_BYTES + 1)
        if end <= start:
            end = start + MOST_SENTENCE_BYTES
            while data[end] & 0xC0 == 0x80:  # not the first byte of a character
                end -= 1
        yield data[start:end].decode()
        start = end
    yield data[start:].decode()


def _print_size(num_sentences: int, num_long_lines: int, settings: TrainSettings) -> None:
    """Says how many sentences there are, and which share of the text the vocabulary is made of."""
    most = settings.input_sentence_size
    if num_long_lines:
        lines = f"{num_long_lines:,} lines of more than {MOST_SENTENCE_BYTES:,} bytes"
        corpus.print_note(PROGRAM, f"{lines} count as several sentences each")
    if num_sentences <= most:
        corpus.print_note(PROGRAM, f"training on {num_sentences:,} sentences, all of the text")
        return
    # Each sentence is drawn with the same probability, so this is also the expected share of the bytes.
    share = most / num_sentences
    sample = f"training on a random {most:,} of {num_sentences:,} sentences"
    corpus.print_note(PROGRAM, f"{sample}, {100 * share:.1f} % of the text")
    if share < LEAST_SHARE:
        reason = f"{100 * (1 - share):.1f} % of the text has no part in the vocabulary"
        advice = f"a higher --input_sentence_size (now {most}) takes more, and more memory"
        corpus.print_note(PROGRAM, f"warning: {reason}; {advice}")


def marks_in(text: str) -> int:
    """The number of accents and other marks that cleaning removes from a text."""
    return sum(map(bool, map(unicodedata.combining, unicodedata.normalize("NFD", text))))


def train(sentences: Iterator[str], settings: TrainSettings, **options: str) -> bytes:
    """Trains a model on cleaned sentences as the released one was trained; returns the content of its file.

    Sentences of more than `MOST_SENTENCE_BYTES` are left out (`divided`). A UserError if the corpus is too small for
    this vocabulary size, or has more characters than the vocabulary can hold.

    Args:
      options: further arguments of the trainer.

    Source: README.md of the original ("SentencePiece"); trainer_spec and normalizer_spec of 30k-clean.model.
    """
    model = io.BytesIO()
    reading_errors: list[BaseException] = []
    # An argument that is given is recorded in the file, even if it is the default.
    chosen: dict[str, str | bool] = {**options}
    if settings.characters:
        chosen["required_chars"] = settings.characters
    if settings.byte_fallback:
        chosen["byte_fallback"] = True
    symbols = dict.fromkeys([*USER_DEFINED_SYMBOLS, *settings.symbols])
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_until_error(sentences, reading_errors),
            model_writer=model,
            model_type="unigram",
            vocab_size=settings.vocab_size,
            character_coverage=settings.character_coverage,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            control_symbols=list(CONTROL_SYMBOLS),
            user_defined_symbols=list(symbols),
            num_threads=NUM_THREADS,
            input_sentence_size=settings.input_sentence_size,
            shuffle_input_sentence=True,  # sampled at random; a smaller corpus stays in its order
            minloglevel=2,  # errors alone
            **chosen,
        )
    except RuntimeError as error:
        if reading_errors:
            raise reading_errors[0] from None
        # Its message names the file and line of its code first.
        reason = " ".join(str(error).rpartition("] ")[2].split())
        raise UserError(f"--vocab_size={settings.vocab_size}: {reason}") from None
    return model.getvalue()


def _until_error(sentences: Iterator[str], errors: list[BaseException]) -> Iterator[str | None]:
    """The sentences; an error of their iterator is kept, and None follows, at which the trainer gives up.

    An error that the trainer's iterator raises does not stop it: it trains on the sentences before, to the end.
    """
    try:
        yield from sentences
    except (Exception, KeyboardInterrupt) as error:
        errors.append(error)
        yield None


program = Program(
    main=main,
    settings_classes=(TrainSettings,),
    description=__doc__,
)
run = flags.in_shell(program)

if __name__ == "__main__":
    run()
