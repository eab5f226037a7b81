#!/usr/bin/env bash
# tokenizers 0.23.3: the normalizer Precompiled loses the second accent of a letter, where sentencepiece 0.2.1 keeps it.
#
# Precompiled applies the table of replacements that a SentencePiece model holds. It looks up a letter with its marks
# (of less than six bytes in all) at once, takes the shortest entry that is found and drops what follows it, while
# sentencepiece takes the longest and goes on with the rest. Expected: the same text from the same table.
# Seen, table nmt_nfkc: "Việt", with its marks as characters of their own (NFD), becomes "Viẹt"; the circumflex is lost.
# A wide "A" with an acute becomes "A", and "²" with an acute "2". The words have other tokens, or those of other words.
#
# Who meets it: anyone who reads a SentencePiece model with tokenizers and texts from systems that decompose letters
# (names of files on a Mac), above all in Vietnamese. Exits with 1 if the behavior changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet tokenizers==0.23.3 sentencepiece==0.2.1 protobuf==7.36.2
cat >"$folder/check.py" <<'PY'
import io
import sys
import unicodedata
from importlib.metadata import version

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import normalizers

print("tokenizers", version("tokenizers"), "| sentencepiece", version("sentencepiece"))
model = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter([f"row {number} of the table is fine" for number in range(200)]),
    model_writer=model,
    vocab_size=40,
    hard_vocab_limit=False,
    normalization_rule_name="nmt_nfkc",
    minloglevel=2,
)
proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
precompiled = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)

seen = []
for text in (unicodedata.normalize("NFD", "Vi\u1ec7t"), "\uff21\u0301", "\u00b2\u0301"):
    theirs = processor.normalize(text).replace("\u2581", "")
    ours = precompiled.normalize_str(text)
    print(ascii(text), "| sentencepiece", ascii(theirs), "| tokenizers", ascii(ours))
    seen.append((theirs, ours))
expected = [("Vi\u1ec7t", "Vi\u1eb9t"), ("\u00c1", "A"), ("2\u0301", "2")]
sys.exit(seen != expected)
PY
"$folder/venv/bin/python" "$folder/check.py"
