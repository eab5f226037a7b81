#!/usr/bin/env bash
# tensorflow-text 2.21.1: BertTokenizer makes one [UNK] of a Thai phrase of 34 letters that tokenizers 0.23.3 divides.
#
# WordPiece gives up words that are too long, to be safe from garbage: google-research/bert above 200 characters,
# tokenizers and transformers above 100 characters, tensorflow-text above 100 bytes, which are 33 letters of Thai, Lao,
# Khmer, Burmese or Tibetan. These languages set no blanks between words, so that to WordPiece a phrase is a word.
# Expected: the same tokens of the same vocabulary, as for texts with blanks. Seen: a phrase of 33 letters has 33 tokens
# in both; with one letter more, 34 in tokenizers and a single [UNK] in BertTokenizer, FastBertTokenizer and
# FastWordpieceTokenizer. max_bytes_per_word=800 makes them equal.
#
# Who meets it: anyone who puts the tokenizer of a multilingual BERT into a TensorFlow graph: training saw the pieces of a
# Thai text, and the server sees a few [UNK]. Exits with 1 if the behavior changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet tensorflow-cpu==2.21.0 tokenizers==0.23.3 numpy==2.4.6
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet --no-deps tensorflow-text==2.21.1 tf_keras==2.21.0
cat >"$folder/check.py" <<'PY'
import os
import sys
from importlib.metadata import version

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow
import tensorflow_text
from tokenizers import Tokenizer, models, pre_tokenizers

print("tensorflow-text", version("tensorflow-text"), "| tokenizers", version("tokenizers"))
# "Thailand lies in the south east of the continent of Asia", without blanks, as it is written.
thai = (
    "\u0e1b\u0e23\u0e30\u0e40\u0e17\u0e28\u0e44\u0e17\u0e22\u0e15\u0e31\u0e49\u0e07\u0e2d\u0e22\u0e39\u0e48"
    "\u0e17\u0e32\u0e07\u0e15\u0e30\u0e27\u0e31\u0e19\u0e2d\u0e2d\u0e01\u0e40\u0e09\u0e35\u0e22\u0e07\u0e43"
    "\u0e15\u0e49\u0e02\u0e2d\u0e07\u0e17\u0e27\u0e35\u0e1b\u0e40\u0e2d\u0e40\u0e0a\u0e35\u0e22"
)
letters = sorted(set(thai + "thailand"))
vocabulary = ["[UNK]", *letters, *(f"##{letter}" for letter in letters)]
path = os.path.join(sys.argv[1], "vocab.txt")
with open(path, "w", encoding="utf-8") as file:
    file.writelines(f"{token}\n" for token in vocabulary)

in_tokenizers = Tokenizer(
    models.WordPiece({token: id for id, token in enumerate(vocabulary)}, unk_token="[UNK]")
)
in_tokenizers.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
text_type = tensorflow.string
in_graphs = {
    "BertTokenizer": tensorflow_text.BertTokenizer(path, token_out_type=text_type),
    "FastBertTokenizer": tensorflow_text.FastBertTokenizer(vocabulary, token_out_type=text_type),
    "FastWordpieceTokenizer": tensorflow_text.FastWordpieceTokenizer(vocabulary, token_out_type=text_type),
    "BertTokenizer, 800 bytes": tensorflow_text.BertTokenizer(
        path, max_bytes_per_word=800, token_out_type=text_type
    ),
}


def tokens_of(tokenizer, text):
    tokens = tokenizer.tokenize([text])
    return [token.decode() for token in tokens.flat_values.numpy()]


seen = []
for name, text in (("33 letters", thai[:33]), ("34 letters", thai[:34]), ("all", thai), ("Latin", "thailand" * 12)):
    theirs = in_tokenizers.encode(text).tokens
    ours = {kind: tokens_of(tokenizer, text) for kind, tokenizer in in_graphs.items()}
    equal = [tokens == theirs for tokens in ours.values()]
    unknown = [tokens == ["[UNK]"] for tokens in ours.values()]
    counts = {kind: len(tokens) for kind, tokens in ours.items()}
    print(name, len(text), "characters,", len(text.encode()), "bytes | tokens:", len(theirs), "in tokenizers,", counts)
    seen.append((equal, unknown))
same, lost = ([True] * 4, [False] * 4), ([False] * 3 + [True], [True] * 3 + [False])
sys.exit(seen != [same, lost, lost, same])
PY
"$folder/venv/bin/python" "$folder/check.py" "$folder"
