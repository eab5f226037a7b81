"""Settings of Hypothesis: few examples, the same in every run."""

import hypothesis
import pytest

from albert_tf.text.tokenizer import Tokenizer
from tests.text.texts import train_with_digits

hypothesis.settings.register_profile(
    "properties",
    max_examples=25,
    derandomize=True,
    database=None,
    deadline=None,  # the first example compiles
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("properties")  # holds for the tests that are imported from now on


@pytest.fixture(scope="session", params=[True, False], ids=["lower", "cased"])
def tokenizer(request, tmp_path_factory) -> Tokenizer:
    path = train_with_digits(tmp_path_factory.mktemp("spm"), "unigram")
    return Tokenizer.from_file(path, do_lower_case=request.param)
