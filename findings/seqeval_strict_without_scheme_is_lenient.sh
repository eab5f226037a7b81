#!/usr/bin/env bash
# seqeval 1.2.2: mode="strict" without a scheme is not strict, silently.
#
# The functions that score entities compare strictly only if both the mode and a scheme are given; with the mode alone,
# they go on by the lenient rule of conlleval, although the package has a function that finds the scheme of tags.
# Expected: the scheme is found, or an error: an entity that begins with I- is none in IOB2, so F1 is 0.
# Seen: F1 1.0 with mode="strict", as without it; 0.0 with mode="strict" and scheme=IOB2.
#
# Who meets it: anyone who reports strict scores of a tagger. Exits with 1 if the behavior changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet seqeval==1.2.2 numpy==2.4.6 scikit-learn==1.9.1
cat >"$folder/check.py" <<'PY'
import sys
import warnings
from importlib.metadata import version

from seqeval.metrics import f1_score
from seqeval.scheme import IOB2

print("seqeval", version("seqeval"))
true = [["O", "B-PER", "I-PER", "O", "B-LOC"]]
predicted = [["O", "I-PER", "I-PER", "O", "I-LOC"]]
with warnings.catch_warnings():
    warnings.simplefilter("error", UserWarning)
    lenient = float(f1_score(true, predicted))
    mode_alone = float(f1_score(true, predicted, mode="strict"))
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that nothing is found
    with_scheme = float(f1_score(true, predicted, mode="strict", scheme=IOB2))
print("F1", lenient, '| mode="strict"', mode_alone, '| mode="strict", scheme=IOB2', with_scheme)
sys.exit((lenient, mode_alone, with_scheme) != (1.0, 1.0, 0.0))
PY
"$folder/venv/bin/python" "$folder/check.py"
