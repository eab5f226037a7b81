"""Results of pretraining for data that are not the run's own: they name their file, and replace nothing."""

import json

import pytest

from tests.helpers import pretrain_here, random_features, write_records
from tests.tasks.test_finetuning import contents

pytestmark = [
    pytest.mark.usefixtures("eagerly"),
    pytest.mark.filterwarnings("ignore:.*run_functions_eagerly.*:UserWarning"),
]


def test_pretraining_keeps_the_results_of_its_own_file(records_file, config_file, tmp_path):
    flags = [f"--albert_config_file={config_file}", "--train_batch_size=6", "--num_train_steps=2"]
    flags += ["--num_warmup_steps=1", f"--output_dir={tmp_path / 'run'}", "--max_eval_steps=0"]
    own = f"--eval_file={records_file}"
    pretrain_here(f"--input_file={records_file}", own, *flags)
    before = contents(tmp_path / "run")
    other = write_records(tmp_path / "other" / "o.tfrecord", random_features(30, seed=5))
    pretrain_here("--do_train=false", f"--eval_file={other}", *flags)
    assert contents(tmp_path / "run") == before
    (place,) = (tmp_path / "run" / "other_data").iterdir()
    results = json.loads((place / "results.json").read_text())
    assert results["data"]["eval"]["file"] == str(other)
    assert results["eval"] != json.loads(before["results.json"])["eval"]
