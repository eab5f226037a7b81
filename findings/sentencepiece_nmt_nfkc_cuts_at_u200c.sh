#!/usr/bin/env bash
# sentencepiece 0.2.1: nmt_nfkc, the default rule, cuts a word at the joiner U+200C, but not at its counterpart U+200D.
#
# U+200C (zero width non-joiner) separates the shapes of two letters within a word, U+200D joins them. NFKC keeps both.
# Expected: the two are treated alike, kept or removed, and the word stays one word.
# Seen: U+200C becomes a blank, so the Persian word for "I go" is two words, the same as with a blank; U+200D is kept.
# With the rule nfkc, both are kept.
#
# Who meets it: anyone who trains a vocabulary for Persian, Kurdish, Urdu or Indian scripts: counts of words, offsets of
# words and tags by word are other than the text has. Exits with 1 if the behavior changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet sentencepiece==0.2.1
cat >"$folder/check.py" <<'PY'
import sys

import sentencepiece

print("sentencepiece", sentencepiece.__version__)
word = "\u0645\u06cc{}\u0631\u0648\u0645"
seen = {}
for rule in ("nfkc", "nmt_nfkc"):
    normalizer = sentencepiece.SentencePieceNormalizer(rule_name=rule)
    seen[rule] = [normalizer.normalize(word.format(joiner)) for joiner in ("\u200c", "\u200d", " ")]
    print(rule, "| U+200C", ascii(seen[rule][0]), "| U+200D", ascii(seen[rule][1]))
kept = [word.format("\u200c"), word.format("\u200d")]
sys.exit(not (seen["nfkc"][:2] == kept and seen["nmt_nfkc"][:2] == [seen["nmt_nfkc"][2], kept[1]]))
PY
"$folder/venv/bin/python" "$folder/check.py"
