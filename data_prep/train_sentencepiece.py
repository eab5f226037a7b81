"""A corpus, one sentence a line -> a SentencePiece model with ALBERT's special pieces.

    python -m data_prep.train_sentencepiece --input_file=corpus.txt --output_prefix=30k-clean

Writes `<prefix>.model` and `<prefix>.vocab`. Every setting is that of the released 30k-clean.model, as its
trainer_spec and normalizer_spec record it.
"""

import dataclasses
import io
import random
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import sentencepiece

from albert_tf import cli
from albert_tf.config import Settings, setting
from albert_tf.errors import UserError
from albert_tf.progress import Progress
from albert_tf.tokenization import clean_text
from data_prep import text_files

LABEL = "train_sentencepiece"

# The first pieces of the vocabulary, in order (README.md of the original; 30k-clean.model).
META_PIECES = ("<pad>", "<unk>")
CONTROL_SYMBOLS = ("[CLS]", "[SEP]", "[MASK]")
USER_DEFINED_SYMBOLS = ("(", ")", '"', "-", ".", "–", "£", "€")
FIRST_PIECES = META_PIECES + CONTROL_SYMBOLS + USER_DEFINED_SYMBOLS

MAX_SENTENCE_BYTES = (
    4192  # the trainer leaves out longer ones; its own default, the released model's too
)
# The trainer adds up its counts thread by thread: a fixed number gives one result on every machine.
NUM_THREADS = 16

SILENT, CHATTY = 2, 0  # the trainer's log levels: errors, everything


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainSettings(Settings):
    """What the vocabulary is made of, and how large it is."""

    input_file: str = setting(
        "",
        "Text files with one sentence a line (files, globs or folders, separated by commas).",
        required=True,
        input_path=True,
    )
    output_prefix: str = setting(
        "", "The files written are this and .model, this and .vocab.", required=True
    )
    vocab_size: int = setting(30000, "Number of pieces.", minimum=len(FIRST_PIECES) + 1)
    character_coverage: float = setting(
        0.99995,
        "Share of the text's characters that get pieces of their own.",
        minimum=0.9,
        maximum=1,
    )
    input_sentence_size: int = setting(
        10_000_000, "Sentences to train on, drawn at random from a larger corpus.", minimum=1
    )
    do_lower_case: bool = setting(True, "Whether to lower-case the text; false for a cased model.")
    random_seed: int = setting(12345, "Seed of the draw of sentences.", minimum=0)
    invalid_utf8: str = text_files.invalid_utf8_setting()
    verbose: bool = setting(False, "Whether to show what SentencePiece says.")


def main(settings: TrainSettings) -> None:
    """Trains a model on the corpus and writes it.

    Raises:
      UserError: a file cannot be read or written, the corpus is empty, or it is too small for the vocabulary.
    """
    start = time.monotonic()
    outputs = (settings.output_prefix + ".model", settings.output_prefix + ".vocab")
    paths = text_files.expand_paths(settings.input_file, not_among=outputs)
    num_sentences = _count_sentences(paths, settings)
    if not num_sentences:
        raise UserError(f"--input_file={settings.input_file}: no sentence there, only blank lines")
    counts = Counter()
    num_drawn = min(num_sentences, settings.input_sentence_size)
    with text_files.show_progress(LABEL, num_drawn, "sentences") as progress:
        sentences = draw(
            _read_sentences(paths, text_files.LineReader(settings.invalid_utf8)),
            num_items=num_sentences,
            num_drawn=num_drawn,
            seed=settings.random_seed,
        )
        model_proto = train(_cleaned(sentences, settings, progress, counts), settings)
    with (
        text_files.OutputFile(outputs[0]) as model,
        text_files.OutputFile(outputs[1]) as vocabulary,
    ):
        model.write(model_proto)
        vocabulary.write(vocabulary_text(model_proto).encode())
    text_files.print_note(
        LABEL,
        f"{counts['used']:,} of {num_sentences:,} sentences ({counts['long']:,} above"
        f" {MAX_SENTENCE_BYTES:,} bytes left out) -> {settings.vocab_size:,} pieces in {outputs[0]};"
        f" {time.monotonic() - start:.1f} s",
    )


def _count_sentences(paths: Sequence[str], settings: TrainSettings) -> int:
    """Reads all of the corpus once, so that what is wrong with it shows before the training."""
    reader = text_files.LineReader(settings.invalid_utf8)
    num_sentences = 0
    with text_files.show_progress(LABEL, text_files.total_bytes(paths), "bytes") as progress:
        for _ in _read_sentences(paths, reader):
            num_sentences += 1
            progress.update(reader.num_bytes)
    for line in reader.report():
        text_files.print_note(LABEL, line)
    return num_sentences


def _read_sentences(paths: Iterable[str], reader: text_files.LineReader) -> Iterator[str]:
    return (line for path in paths for line in reader.read(path) if line.strip())


def draw(items: Iterable[str], *, num_items: int, num_drawn: int, seed: int) -> Iterator[str]:
    """Draws items from a stream, each subset of the size wanted as likely as any other, and keeps their order.

    Args:
      items: the stream; nothing of it is held in memory.
      num_items: how many it has.
      num_drawn: how many to draw; all of them if it has fewer.
      seed: equal seeds draw equal items.

    Source: Knuth, The Art of Computer Programming, volume 2, 3.4.2, algorithm S (selection sampling).
    """
    generator = random.Random(seed)
    num_wanted = min(num_drawn, num_items)
    for num_left, item in zip(range(num_items, 0, -1), items, strict=True):
        if generator.random() * num_left < num_wanted:
            num_wanted -= 1
            yield item


def _cleaned(
    sentences: Iterable[str], settings: TrainSettings, progress: Progress, counts: Counter
) -> Iterator[str]:
    for num_read, sentence in enumerate(sentences, start=1):
        progress.update(num_read)
        text = clean_text(sentence, do_lower_case=settings.do_lower_case)
        is_long = len(text.encode()) > MAX_SENTENCE_BYTES
        counts["long" if is_long else "used"] += 1
        if not is_long:
            yield text


def train(sentences: Iterator[str], settings: TrainSettings) -> bytes:
    """Trains a model as the released one was trained.

    Args:
      sentences: cleaned text.
      settings: the size of the vocabulary, and what else differs from the released model's.

    Returns:
      The bytes of a SentencePiece model file.

    Raises:
      UserError: the corpus does not hold so many pieces, or has more characters than the vocabulary has room for.

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
            # What follows are the trainer's defaults of today; a later version may have others.
            normalization_rule_name="nmt_nfkc",
            add_dummy_prefix=True,
            remove_extra_whitespaces=True,
            split_by_unicode_script=True,
            split_by_number=True,
            split_by_whitespace=True,
            treat_whitespace_as_suffix=False,
            hard_vocab_limit=True,
            max_sentencepiece_length=16,
            max_sentence_length=MAX_SENTENCE_BYTES,
            seed_sentencepiece_size=1_000_000,
            shrinking_factor=0.75,
            num_sub_iterations=2,
            num_threads=NUM_THREADS,
            # The sentences were drawn before.
            input_sentence_size=0,
            shuffle_input_sentence=False,
            minloglevel=CHATTY if settings.verbose else SILENT,
        )
    except RuntimeError as error:
        if reading_errors:
            raise reading_errors[0] from None
        raise _explain(str(error), settings) from None
    return model.getvalue()


def _remember_error(sentences: Iterator[str], errors: list[Exception]) -> Iterator[str]:
    """Keeps an error of the iterator, of which the trainer passes on no more than the text."""
    try:
        yield from sentences
    except Exception as error:
        errors.append(error)
        raise


def _explain(message: str, settings: TrainSettings) -> UserError:
    """The trainer's error as one line that names the flag."""
    wanted = f"--vocab_size={settings.vocab_size}"
    if match := re.search(r"too high \(\d+\).*?<= (\d+)", message, re.DOTALL):
        return UserError(
            f"{wanted}: the corpus is too small for so many pieces; it gives at most {match[1]}"
        )
    if match := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return UserError(
            f"{wanted} is too small: special pieces and single characters alone are {match[1]};"
            " raise it, or lower --character_coverage"
        )
    return UserError(f"SentencePiece cannot train on this corpus: {' '.join(message.split())}")


def vocabulary_text(model_proto: bytes) -> str:
    """The vocabulary of a model as SentencePiece writes it to `.vocab` files: a line "piece<tab>score" each."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model_proto)
    ids = range(processor.get_piece_size())
    return "".join(f"{processor.id_to_piece(id)}\t{processor.get_score(id):g}\n" for id in ids)


if __name__ == "__main__":
    cli.run(main, TrainSettings)
