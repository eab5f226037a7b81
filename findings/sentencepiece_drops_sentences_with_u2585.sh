#!/usr/bin/env bash
# sentencepiece 0.2.1: the trainer leaves out every sentence that contains U+2585 (a lower five eighths block), silently.
#
# U+2585 is the mark that the library itself uses for an unknown token while it trains. A sentence with it is skipped
# whole, and with minloglevel=2 nothing says so; the count of loaded sentences is only in the log of level 0. Expected:
# the character is treated as any other symbol, or removed, and the rest of the sentence counts.
# Seen: the letter of 100 of 300 sentences has no piece in the vocabulary, although character_coverage is 1.0; without
# the block in these sentences, it has one. Texts meet it that draw bars or progress in blocks: logs, weather, chat.
#
# Who meets it: anyone who trains a vocabulary on text from the web. Exits with 1 if the behavior changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet sentencepiece==0.2.1
cat >"$folder/check.py" <<'PY'
import io
import sys

import sentencepiece

print("sentencepiece", sentencepiece.__version__)


def has_letter(mark):
    """Whether a vocabulary of 300 sentences, 100 of which have the letter and the mark, has a piece with the letter."""
    plain = [f"row {number} of the table is fine" for number in range(200)]
    marked = [f"load {mark} \u03c9\u03c9 of unit {number}" for number in range(100)]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(plain + marked),
        model_writer=model,
        vocab_size=60,
        hard_vocab_limit=False,
        character_coverage=1.0,
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pieces = [processor.id_to_piece(number) for number in range(len(processor))]
    return any("\u03c9" in piece for piece in pieces)


with_other_block, with_u2585 = has_letter("\u2588"), has_letter("\u2585")
print("letter in the vocabulary: with U+2588", with_other_block, "| with U+2585", with_u2585)
sys.exit(not (with_other_block and not with_u2585))
PY
"$folder/venv/bin/python" "$folder/check.py"
