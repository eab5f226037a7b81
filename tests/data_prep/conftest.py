"""Fixtures: a vocabulary of invented words, and records made in this process."""

import pathlib

import pytest

from albert_tf.data_prep import create_pretraining_data
from albert_tf.data_prep.pretraining.settings import PretrainingDataSettings
from tests.helpers import made_up_text, train_spm


@pytest.fixture(scope="session")
def spm_model_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("spm") / "spiece.model"
    return train_spm(path, made_up_text(200, seed=1).lower().splitlines(), vocab_size=200)


@pytest.fixture
def make_records(tmp_path, spm_model_file):
    """A function that makes records, by one process if not asked for more; returns their folder."""

    def make(folder, **changes):
        defaults = {"output_dir": str(tmp_path / folder), "spm_model_file": spm_model_file}
        defaults |= {"max_seq_length": 64, "max_predictions_per_seq": 10, "num_workers": 1}
        settings = PretrainingDataSettings(**{**defaults, **changes})
        create_pretraining_data.main(settings)
        return pathlib.Path(settings.output_dir.removeprefix("file://"))

    return make
