"""Wrong input of fine-tuning: one line that says what to change; what looks wrong and is not, works."""

import json
import pathlib
import shutil

import numpy as np
import pytest

from albert_tf import UserError, load_pretrained, save_pretrained
from tests.helpers import (
    error_of,
    fine_tune_here,
    fine_tuning_settings,
    make_task,
    run_script,
    the_line,
    train_spm,
    without_checksums,
    write_files,
)


@pytest.fixture
def error_with(task_flags, tmp_path):
    """A function that runs a task with some flags changed and returns the one line of the error."""

    def run(task, *flags):
        runner, common = task_flags[task]
        folder = f"--output_dir={tmp_path / 'run'}"
        line = error_of(fine_tune_here, runner, *common, folder, *flags)
        assert not (tmp_path / "run").exists()
        return line

    return run


def tsv(folder, *lines, name="train.tsv") -> str:
    path = folder / name
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return str(path)


HEADER = "name\treview\tmood"
ROWS = ["1\tanna saw a good cat .\tgood", "2\tthe old tree was bad .\tbad"]


def several(folder, *rows, name="train.tsv") -> str:
    return tsv(folder, "review\ttopics", *rows, name=name)


def test_a_label_that_only_the_development_data_has(error_with, tmp_path):
    path = tsv(tmp_path, HEADER, ROWS[0], "2\tfine .\tsplendid", name="dev.tsv")
    line = error_with("tsv", f"--eval_file={path}")
    assert line == f"{path}:3: expected a label (bad, fine, good), got 'splendid'"
    path = several(tmp_path, "red .\tcolour;food", name="dev.tsv")
    line = error_with("labels", f"--eval_file={path}")
    assert line == f"{path}:2: expected a label (animal, colour, mood, name), got 'food'"


def test_labels_that_nobody_has_and_repeated_ones_are_fine(task_flags, finished, tmp_path):
    runner, flags = task_flags["labels"]
    topics = ["anna saw a cat .\tanimal", "red .\tcolour; animal", "fine .\t"]
    path = several(tmp_path, *topics, "blue .\t colour ;colour")
    start = f"--init_checkpoint={finished('labels').folder}"  # knows two more labels
    task = make_task(runner, *flags, start, f"--train_file={path}", f"--eval_file={path}")
    expected = [(1, 0, 0, 0), (1, 1, 0, 0), (0, 0, 0, 0), (0, 1, 0, 0)]
    assert [item.label for item in task.items["eval"]] == expected
    assert task.class_weights.tolist() == [1, 1, 1, 1]
    for probability in (0.5, np.nan):  # of a model that diverged
        probabilities = np.full([4, 4], probability, np.float32)
        scores = task.evaluate([{"probabilities": probabilities}])
        assert all(0 <= value <= 1 for value in scores.values())


def test_a_model_with_one_label_for_each_text_rejects_a_label_separator(
    finished, task_files, tmp_path
):
    start = f"--init_checkpoint={finished('tsv').folder / 'model'}"
    flags = [f"--eval_file={task_files / 'labels' / 'dev.tsv'}", "--task_name=tsv", start]
    flags += ["--do_train=false", f"--output_dir={tmp_path}", "--label_separator=;"]
    with pytest.raises(UserError, match="--label_separator=; contradicts .* trained with --label_"):
        fine_tune_here("classifier", *flags)


def test_files_of_another_task(error_with, task_files, tmp_path):
    (tmp_path / "MRPC").mkdir()
    for split in ("train", "dev"):
        shutil.copy(task_files / "glue" / "STS-B" / f"{split}.tsv", tmp_path / "MRPC")
    line = error_with("mrpc", f"--data_dir={tmp_path}")
    assert line.startswith(f"{tmp_path / 'MRPC' / 'train.tsv'}: has no column '#1 String'")
    line = error_with("mrpc", f"--data_dir={task_files / 'glue' / 'STS-B'}")
    assert line == f"{task_files / 'glue' / 'STS-B'}: is the folder of STS-B, not of MRPC"
    line = error_with("squad1.1", f"--train_file={task_files / 'squad' / 'train-v2.0.json'}")
    assert "needs --version=2.0" in line
    shutil.copytree(task_files / "RACE" / "train", tmp_path / "RACE" / "train")
    assert "has no folder dev" in error_with("race", f"--data_dir={tmp_path / 'RACE'}")


# --- Model and vocabulary


def test_a_vocabulary_that_is_not_the_models(error_with, tiny_pretrained, tmp_path):
    changes = {"model_type": "char", "vocab_size": 20, "hard_vocab_limit": False}
    other = train_spm(tmp_path / "other.model", ["anna saw bert"] * 3, **changes)
    line = error_with("tsv", f"--spm_model_file={other}")
    assert line.startswith(f"--spm_model_file={other}: is not the vocabulary that came with the")
    assert str(tiny_pretrained / "spiece.model") in line

    model = tmp_path / "model"
    shutil.copytree(tiny_pretrained, model)
    (without_checksums(model) / "spiece.model").unlink()
    line = error_with("tsv", f"--init_checkpoint={model}", f"--spm_model_file={other}")
    assert line.startswith(f"{other}: has ") and "but the model's vocab_size is " in line
    line = error_with("tsv", f"--init_checkpoint={model}")
    assert line.startswith("--spm_model_file or --vocab_file is required") and str(model) in line
    (model / "spiece.model").write_text("not a model")
    line = error_with("tsv", f"--init_checkpoint={model}")
    assert line.startswith(f"{model / 'spiece.model'}: is neither a SentencePiece model nor")


def test_a_cased_vocabulary_for_a_model_without_case(error_with, tiny_pretrained, tmp_path):
    spm = str(tiny_pretrained / "spiece.model")
    save_pretrained(
        load_pretrained(tiny_pretrained), tmp_path, spm_model_file=spm, do_lower_case=False
    )
    line = error_with("tsv", f"--init_checkpoint={tmp_path}")
    assert line == f"--do_lower_case is true, but the model in {tmp_path} was trained with false"


def test_another_size_than_the_checkpoints(error_with):
    assert "change --model" in error_with("tsv", "--model=albert-base-v2", "--max_seq_length=33")


def test_a_run_of_other_settings_or_data_in_the_folder(finished, task_files, tmp_path):
    run = finished("tsv")
    path = tmp_path / "train.tsv"
    path.write_text((task_files / "tsv" / "train.tsv").read_text().replace("anna", "bert"))
    for flag, wanted in {
        "--learning_rate=0.02": "contains a run with learning_rate=0.01, not 0.02",
        "--max_seq_length=32": "contains a run with max_seq_length=33, not 32",
        f"--train_file={path}": "contains a run with train_sha256=",
    }.items():
        with pytest.raises(UserError, match=wanted):
            fine_tune_here(run.runner, *run.flags, flag, f"--output_dir={run.folder}")


# --- Flags: rejected before TensorFlow is imported, with status 2

MODEL = "--init_checkpoint={model} --output_dir=x"
GLUE = "classifier --task_name=RTE --data_dir={tasks}/glue"
OWN = f"classifier {MODEL} --task_name=tsv --train_file={{tasks}}/tsv/train.tsv"
REVIEWS = f"{OWN} --text_columns=review --label_column=mood --eval_file={{tasks}}/tsv/dev.tsv"
SQUAD = f"squad {MODEL} --max_query_length=9"  # of the model's 64 positions
RACE = f"race {MODEL} --data_dir={{tasks}}/RACE"
# Flags, and what the line must say.
WRONG_FLAGS = {
    f"{GLUE} --output_dir=x --model=albert-base-v2": "--spm_model_file or --vocab_file",
    f"classifier {MODEL}": "--task_name is required",
    f"classifier {MODEL} --task_name=RTE": "--data_dir is required",
    f"classifier {MODEL} --task_name=RTE --data_dir=nowhere": "--data_dir=nowhere",
    f"classifier {MODEL} --task_name=tsv --text_columns=review": "--train_file",
    f"{GLUE} {MODEL} --train_file={{tasks}}/tsv/train.tsv": "--train_file and --eval_file belong to",
    f"{GLUE} {MODEL} --task_name=MRCP": "--task_name must be one of CoLA, SST-2, MRPC, STS-B",
    OWN: "--text_columns is required",
    f"{REVIEWS} --text_columns=a,b,c": "--text_columns must be one or two names, got 'a,b,c'",
    f"{REVIEWS} --text_columns=a,a": "--text_columns must be one or two names, got 'a,a'",
    f"{REVIEWS} --text_columns=a,": "--text_columns must be one or two names, got 'a,'",
    f"{REVIEWS} --id_column=mood": "--label_column=mood is in --text_columns or --id_column",
    f"{REVIEWS} --label_column=": "--label_column",
    f"{REVIEWS} --class_weights=good:0": "--class_weights must be",
    f"{REVIEWS} --class_weights=good:inf": "got 'good:inf'",
    f"{REVIEWS} --text_columns=review,mood": "--label_column=mood is in --text_columns",
    f"{REVIEWS} --seed=2147483647 --num_runs=2": "--num_runs (2) and --restart_collapsed",
    f"{REVIEWS} --num_train_steps=12 --start_warmup_step=9 --num_warmup_steps=4": "--start_warmup_step=9",
    f"{REVIEWS} --worker_hosts=a:99999 --distribution_strategy=multi_worker_mirrored": (
        "--worker_hosts"
    ),
    f"{REVIEWS} --label_separator=; --kind=regression": "--label_separator and --kind=regression",
    f"{GLUE} {MODEL} --label_separator=;": "--label_separator is for --task_name=tsv",
    f"{REVIEWS} --label_separator=\t": "--label_separator must not be a tab",
    f"{REVIEWS} --class_weights=good": "--class_weights must be `balanced` or label:weight pairs",
    f"{REVIEWS} --class_weights=good:2,:1": "got ':1'",
    f"{REVIEWS} --search=learning_rate": "--search: expected flags once each",
    f"{REVIEWS} --search=rate=1,2": "--search: 'rate' is not a flag that changes results",
    f"{REVIEWS} --search=seed=1,2": "--search: leave out seed",
    f"{REVIEWS} --search=train_batch_size=8,some": "train_batch_size must not be 'some'; expected int",
    f"{REVIEWS} --search=learning_rate=-1,1": "--learning_rate must be",
    f"{REVIEWS} --search=poly_power=1 --do_eval=false": "--search needs --do_train and --do_eval",
    f"{REVIEWS} --label_smoothing=0.1 --kind=regression": "--label_smoothing is for one label",
    f"{REVIEWS} --learning_rate_factors=embeddings": "--learning_rate_factors must be part:factor pairs",
    f"{REVIEWS} --learning_rate_factors=pooler:1": "--learning_rate_factors is for embeddings",
    f"{REVIEWS} --class_weights=good:2,good:3": "--class_weights has 'good' twice",
    f"{REVIEWS} --class_weights=good:2 --kind=regression": "--class_weights is for labels",
    f"{GLUE} {MODEL} --task_name=QNLI --class_weights=balanced --pair_ranking": "--pair_ranking",
    f"{GLUE} {MODEL} --windows": "--windows is for --task_name=tsv with one column",
    f"{REVIEWS} --text_columns=review,name --windows": "--windows is for --task_name=tsv with one",
    f"{REVIEWS} --preset=paper": "--preset=paper has no row for tsv",
    f"squad {MODEL} --do_train=false --do_eval=false": "--do_eval or --do_train must be true",
    SQUAD: "--train_file is required to train",
    f"{SQUAD} --do_train=false --do_eval=false --do_predict": "--predict_file is required",
    f"{SQUAD} --null_threshold=high": "--null_threshold must be `best` or a number",
    f"{SQUAD} --version=2.0 --softmax_over_padding": "--softmax_over_padding is for --version=1.1",
    f"{SQUAD} --version=1.1 --softmax_over_padding --length_buckets=2": "--length_buckets=2 contradict",
    f"{RACE} --max_eval_steps=5": "--max_eval_steps must be 0",
    f"{RACE} --num_runs=3 --do_train=false": "--num_runs (3) needs --do_train",
    f"{RACE} --ensemble=runs/a,runs/b": "--ensemble=runs/a",
    f"{RACE} --num_train_steps=10 --num_warmup_steps=11": "--num_warmup_steps (11)",
    f"{RACE} --init_checkpoint=albert-base-v2": "hf:albert/albert-base-v2",
}


@pytest.mark.parametrize("command", WRONG_FLAGS)
def test_a_wrong_flag(command, task_files, tiny_pretrained):
    runner, *flags = command.split(" ")
    flags = [flag.format(tasks=task_files, model=tiny_pretrained) for flag in flags]
    with pytest.raises(UserError) as caught:
        fine_tuning_settings(runner, *flags)
    assert WRONG_FLAGS[command] in str(caught.value)


PREDICT = "--do_train=false --do_predict --predict_file={tasks}/squad/questions.json"
ANSWER = f"squad {PREDICT} --do_eval=false"
# What is found by parsing, or in the files of models and runs.
WRONG_IN_A_PROCESS = {
    "race --max_qa_len=3": "did you mean --max_qa_length?",
    GLUE + " --output_dir=x": "--model or --albert_config_file or --init_checkpoint",
    f"{RACE} --max_seq_length=65": "--max_seq_length (65)",
    f"{ANSWER} --output_dir={{run}} --max_seq_length=41": (
        "--max_seq_length=41 contradicts {run}, which was trained with --max_seq_length=40; use that"
    ),
    f"{ANSWER} --output_dir=new --init_checkpoint={{run}} --version=2.0": "--version=2.0 contradicts",
    f"{ANSWER} --output_dir=new --init_checkpoint={{run}}/checkpoints/step-3 --nodo_lower_case": (
        "--do_lower_case=false contradicts {run}/checkpoints/step-3"
    ),
    f"{ANSWER} --output_dir=new --ensemble={{run}},{{run}} --doc_stride=14": (
        "--doc_stride=14 contradicts {run}"
    ),
    f"squad {PREDICT} --output_dir={{run}}": "to predict only, --do_eval=false",
}


@pytest.fixture(scope="module")
def recorded_run(tmp_path_factory) -> pathlib.Path:
    """What the files of a finished run of SQuAD say about it, without its weights."""
    settings = {"version": "1.1", "max_seq_length": 40, "doc_stride": 13, "max_query_length": 9}
    config = {
        "run": {},
        "optimizer": {},
        "model": {"max_position_embeddings": 64, "finetuning_task": "squad1.1"},
        "task": {**settings, "do_lower_case": True},
    }
    folder = tmp_path_factory.mktemp("recorded")
    write_files(folder, {"config.json": json.dumps(config), "checkpoints/step-3.index": ""})
    return folder


@pytest.mark.parametrize("command", WRONG_IN_A_PROCESS)
def test_a_wrong_flag_stops_before_tensorflow_is_imported(
    command, task_files, tiny_pretrained, recorded_run, no_tensorflow
):
    names = {"tasks": task_files, "model": tiny_pretrained, "run": recorded_run}
    runner, *flags = command.format(**names).split()
    process = run_script(f"run_{runner}.py", *flags, **no_tensorflow)
    line = the_line(process)
    assert process.returncode == 2
    wanted = WRONG_IN_A_PROCESS[command].format(**names)
    assert line.startswith(f"run_{runner}.py: ") and wanted in line
