"""Wrong values of every flag of every program: status 2, one line that names the flag, TensorFlow not loaded."""

import json

import pytest

from tests.helpers import run_script

FINE_TUNING = ["--output_dir=x", "--init_checkpoint=README.md"]
CORPUS = ["--input_file=README.md", "--spm_model_file=README.md", "--output_dir=x"]
# Programs with flags that they accept; `-m lab.experiments` has a command each.
PROGRAMS = {
    "run_pretraining.py": [*("--output_dir=x", "--model=albert-base-v2", "--input_file=README.md")],
    "run_classifier.py": [
        *(*FINE_TUNING, "--task_name=tsv", "--train_file=README.md", "--text_columns=a")
    ],
    "run_squad.py": [*FINE_TUNING, "--train_file=README.md"],
    "run_race.py": [*FINE_TUNING, "--data_dir=docs"],
    "run_tagger.py": [*FINE_TUNING, "--train_file=README.md"],
    "run_embedder.py": [*FINE_TUNING, "--train_file=README.md", "--text_columns=a,b"],
    "albert_tf.predict": ["--model=docs"],
    "albert_tf.search": ["--model=docs", "--corpus=README.md"],
    "albert_tf.convert": ["--model=docs", "--output_dir=x"],
    "albert_tf.export": ["--model=docs", "--output_dir=x"],
    "albert_tf.serve": ["--folder=docs"],
    "data_prep.split_sentences": ["--input_file=README.md", "--output_file=x"],
    "data_prep.sample_corpus": ["--output_file=x"],
    "data_prep.train_sentencepiece": ["--input_file=README.md", "--output_prefix=x"],
    "data_prep.create_pretraining_data": CORPUS,
    "albert_tf.glue_submission": ["--runs=docs", "--output_file=x"],
    "lab.experiments list": [],
    "lab.experiments run": ["--experiments=table_5"],
    "lab.experiments report": [],
    "lab.experiments development_set": CORPUS,
    "lab.experiments evaluate": ["--model=docs", "--intrinsic_dir=docs"],
    "lab.benchmarks.run": [],
    "lab.benchmarks.report": ["--results_dir=docs"],
    "lab.benchmarks.serving": ["--input_file=README.md", "--model_dir=docs"],
    "lab.tools.scaling_table": [],
    "demo.py": [],
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_wrong_value_of_every_flag_is_rejected_in_one_line(program, no_tensorflow):
    process = run_script("-m tests.wrong_flags", program, *PROGRAMS[program], **no_tensorflow)
    assert process.returncode == 0, process.stderr
    outcomes = [json.loads(line) for line in process.stdout.splitlines()]
    assert outcomes.pop(0) == ["", "accepted", []]
    assert len(outcomes) > 5
    for argument, status, lines in outcomes:
        assert (status, len(lines)) == (2, 1), (argument, status, lines)
        name = argument.partition("=")[0].lstrip("-")
        assert name in lines[0] and len(lines[0]) < 600, (argument, lines)
