"""The published score of real weights, where they and the data are: ALBERT_REAL_WEIGHTS names the model's folder."""

import os

import pytest

from albert_tf import load_predictor
from lab import real_weights

MODEL = os.environ.get("ALBERT_REAL_WEIGHTS")
DATA = os.environ.get("ALBERT_TEST_DATA")


@pytest.mark.skipif(not (MODEL and DATA), reason="needs ALBERT_REAL_WEIGHTS and ALBERT_TEST_DATA")
def test_the_published_score_of_sts_b():
    data = real_weights.read_data(DATA)
    found = real_weights.scores(load_predictor(MODEL).embed, {"test": data["test"]})
    assert found["test"] == pytest.approx(0.82032, abs=1e-4)
