#!/usr/bin/env bash
# sentencepiece 0.2.1: the pieces of a word can depend on the words before it, although no piece crosses a blank.
#
# The best division of a line is a sum of scores from its start, kept in float32. Where two divisions of a word have
# nearly equal scores, the rounding of this sum decides, and it changes with what is before the word. Expected: as each
# score is of a piece, a word has the same pieces wherever it stands. Seen: a word has two pieces alone and one after
# thirty other words, or the other way around.
#
# Who meets it: anyone who encodes each distinct word once, as a cache or a dictionary from words to ids, or compares
# SentencePiece with a library that divides words one by one: some lines have other ids. Exits with 1 if the behavior
# changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet sentencepiece==0.2.1 protobuf==7.34.1
cat >"$folder/check.py" <<'PY'
import random
import sys

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto

print("sentencepiece", sentencepiece.__version__)
kinds = ModelProto.SentencePiece
generator = random.Random(0)
letters = "abcdefgh"
scores = {letter: -generator.uniform(2, 5) for letter in letters}
# Each pair of letters has nearly the score of its two letters.
scores |= {a + b: scores[a] + scores[b] + generator.uniform(-3e-6, 3e-6) for a in letters for b in letters}

model = ModelProto()
model.trainer_spec.model_type = 1  # unigram
model.normalizer_spec.add_dummy_prefix = True
model.pieces.add(piece="<unk>", type=kinds.UNKNOWN)
model.pieces.add(piece="\u2581", score=-3.0)
for piece, score in scores.items():
    model.pieces.add(piece=piece, score=score)
processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())

words = [a + b for a in letters for b in letters]
before = " ".join(generator.choice(words) for _ in range(30))
changed = []
for word in words:
    alone = processor.encode(word, out_type=str)
    in_line = processor.encode(f"{before} {word}", out_type=str)
    # The pieces of the last word: those from the last blank on.
    start = max(place for place, piece in enumerate(in_line) if piece == "\u2581")
    if in_line[start:] != alone:
        changed.append((word, alone, in_line[start:]))
print(f"words with other pieces after thirty words: {len(changed)} of {len(words)}")
for word, alone, after in changed[:2]:
    print(word, "alone", alone, "after", after)
sys.exit(not changed)
PY
"$folder/venv/bin/python" "$folder/check.py"
