#!/usr/bin/env bash
# sentencepiece 0.2.1: an error in the iterator of sentences does not stop the trainer, which learns from what came before.
#
# The trainer takes an exception of its `sentence_iterator` for the end of the text, trains on the part before it, writes
# the model, and only then reports. Where this part has enough words, the report is a SystemError, after all hours of the
# training; where it has too few, it is an advice to make the vocabulary smaller, in which the exception is not named.
# Expected: the exception at once, and no model. A value that is no text (None), for its part, does stop the trainer.
# Seen: SystemError, and a model of 30 pieces in the file, made of 500 sentences; with 2 sentences, "Vocabulary size too
# high (30). Please set it to a value <= 24".
#
# Who meets it: anyone whose generator can raise (a line that is not UTF-8, a file cut off, Ctrl-C): a vocabulary of a
# part of the text stays on the disk. Exits with 1 if the behavior changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet sentencepiece==0.2.1
cat >"$folder/check.py" <<'PY'
import pathlib
import sys

import sentencepiece

folder = pathlib.Path(sys.argv[1])
print("sentencepiece", sentencepiece.__version__)


def sentences(number, end):
    for index in range(number):
        yield f"sentence {index} of a long and rather dull text"
    if end == "error":
        raise ValueError("line 501 is not UTF-8")
    yield None


def outcome(number, end):
    prefix = folder / f"{end}{number}"
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=sentences(number, end),
            model_prefix=str(prefix),
            vocab_size=30,
            hard_vocab_limit=number < 10,
            minloglevel=2,
        )
        error = "none"
    except Exception as raised:
        error = f"{type(raised).__name__}: {str(raised)[-90:]}"
    model = prefix.with_suffix(".model")
    pieces = 0
    if model.exists():
        pieces = sentencepiece.SentencePieceProcessor(model_file=str(model)).get_piece_size()
    print(f"{number} sentences, then {end}: {error} | pieces in the file: {pieces}")
    return error, pieces


enough = outcome(500, "error")
few = outcome(2, "error")
stopped = outcome(500, "None")
as_seen = enough[0].startswith("SystemError") and enough[1] > 0
as_seen = as_seen and "UTF-8" not in few[0] and few[1] == 0
as_seen = as_seen and stopped[0].startswith("RuntimeError") and stopped[1] == 0
sys.exit(not as_seen)
PY
"$folder/venv/bin/python" "$folder/check.py" "$folder"
