#!/usr/bin/env bash
# tf-models-official 2.20.0: the learning rate step_cosine_with_offset swings up and down, then is NaN.
#
# StepCosineDecayWithOffset says of boundaries [100000, 110000], values [1.0, 0.5]: from 1.0 to 0.5 until step 100,000,
# from there to 0 at step 110,000. It takes the length between the boundaries (10,000) for the first part, whose cosine
# then goes down and up five times, and 0 for the length of the last, so that it divides by 0 from the last boundary on.
# Expected, by its own words: 0.75 at step 50,000, 0.5 at 100,000, 0.25 at 105,000, 0 at 110,000.
# Seen: 0.5 at 10,000, 1.0 at 20,000, 1.0 at 100,000, 0.75 at 105,000, NaN from 110,000 on.
# With boundaries [0, 100000] it decays as one would have it, and is NaN at the last step that was meant to be 0.5.
#
# Who meets it: anyone who sets learning_rate.type to step_cosine_with_offset in a configuration of Model Garden: all
# weights are NaN after one step beyond the last boundary, before that the rate is another. Exits with 1 if it changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
# Only what the schedules import: the package itself requires some fifty others.
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet tensorflow-cpu==2.20.0 gin-config==0.5.0 PyYAML==6.0.3
"$folder/venv/bin/python" -m pip --disable-pip-version-check install --quiet --no-deps tf-models-official==2.20.0 tf_keras==2.20.1
cat >"$folder/check.py" <<'PY'
import math
import os
import sys
from importlib.metadata import version

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_USE_LEGACY_KERAS"] = "1"
from official.modeling.optimization import lr_schedule

print("tf-models-official", version("tf-models-official"), "| tensorflow-cpu", version("tensorflow-cpu"))


def rates(boundaries, values, steps):
    schedule = lr_schedule.StepCosineDecayWithOffset(boundaries=boundaries, values=values)
    found = [round(float(schedule(step)), 3) for step in steps]
    print("boundaries", boundaries, "| values", values, "|", dict(zip(steps, found)))
    return [None if math.isnan(rate) else rate for rate in found]


documented = rates([100000, 110000], [1.0, 0.5], [0, 10000, 20000, 50000, 100000, 105000, 110000, 120000])
from_zero = rates([0, 100000], [1.0, 0.5], [0, 50000, 99999, 100000, 100001])
sys.exit(
    not (
        documented == [1.0, 0.5, 1.0, 0.5, 1.0, 0.75, None, None]
        and from_zero == [1.0, 0.75, 0.5, None, None]
    )
)
PY
"$folder/venv/bin/python" "$folder/check.py"
