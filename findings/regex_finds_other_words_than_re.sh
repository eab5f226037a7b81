#!/usr/bin/env bash
# regex 2026.11.19: \w+ finds other words than the same expression does in re (Python 3.11), in many scripts.
#
# In regex, vowel signs and accents of their own belong to \w and numbers such as a half do not; in re, what isalnum()
# says. The package is otherwise a replacement of re, and says so. Expected: the same words of the same text.
# Seen: "हिन्दी में दो शब्द" (four words) has seven in re, none of which is a word, and four in regex; "x² ½" has two in
# re and one in regex, "x" alone.
#
# Who meets it: anyone who counts words, takes F1 of words or splits text, and changes from one to the other for speed
# or \p{...}: scores of Hindi, Bengali, Tamil, Thai or vocalized Arabic change. Exits with 1 if the behavior changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet regex==2026.11.19
cat >"$folder/check.py" <<'PY'
import re
import sys
from importlib.metadata import version

import regex

print("regex", version("regex"), "| Python", sys.version.split()[0])
texts = {
    "Hindi": "\u0939\u093f\u0928\u094d\u0926\u0940 \u092e\u0947\u0902 \u0926\u094b \u0936\u092c\u094d\u0926",
    "Tamil": "\u0ba4\u0bae\u0bbf\u0bb4\u0bcd \u0bae\u0bca\u0bb4\u0bbf",
    "numbers": "x\u00b2 \u00bd",
}
seen = {}
for name, text in texts.items():
    seen[name] = len(re.findall(r"\w+", text)), len(regex.findall(r"\w+", text))
    print(name, "| re", *map(ascii, re.findall(r"\w+", text)), "| regex", *map(ascii, regex.findall(r"\w+", text)))
print(seen)
sys.exit(seen != {"Hindi": (7, 4), "Tamil": (4, 2), "numbers": (2, 1)})
PY
"$folder/venv/bin/python" "$folder/check.py"
