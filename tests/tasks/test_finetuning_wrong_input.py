"""Wrong input of fine-tuning: one line that says what to change; what looks wrong and is not, works."""

import json
import pathlib
import shutil
import time

import numpy as np
import pytest
import safetensors.numpy

from albert_tf import UserError, load_pretrained, save_pretrained
from tests.helpers import (
    fine_tune_here,
    make_task,
    run_script,
    the_line,
    train_spm,
    without_checksums,
    write_files,
)


@pytest.fixture
def refused(task_flags, tmp_path):
    """A function that runs a task with some flags changed and returns the one line of the error."""

    def run(task, *flags):
        runner, common = task_flags[task]
        with pytest.raises(UserError) as caught:
            fine_tune_here(runner, *common, f"--output_dir={tmp_path / 'run'}", *flags)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "run").exists()
        return str(caught.value)

    return run


# --- A user's own files


def tsv(folder, *lines, name="train.tsv", encoding="utf-8") -> str:
    path = folder / name
    path.write_bytes("".join(f"{line}\n" for line in lines).encode(encoding))
    return str(path)


HEADER = "name\treview\tmood"
ROWS = ["1\tanna saw a good cat .\tgood", "2\tthe old tree was bad .\tbad"]


def test_a_missing_column(refused, tmp_path):
    path = tsv(tmp_path, "name\ttext\tmood", *ROWS)
    wanted = f"--train_file={path}: has no column 'review', only 'name', 'text', 'mood'"
    assert refused("tsv", f"--train_file={path}") == wanted


def test_commas_instead_of_tabs(refused, tmp_path):
    path = tsv(tmp_path, "name,review,mood", "1,anna,good")
    line = refused("tsv", f"--train_file={path}")
    assert line.endswith("only 'name,review,mood'; columns are separated by tabs")


def test_an_unknown_label_in_the_development_data(refused, tmp_path):
    path = tsv(tmp_path, HEADER, ROWS[0], "2\tfine .\tsplendid", name="dev.tsv")
    line = refused("tsv", f"--eval_file={path}")
    assert line == f"{path}:3: expected a label (bad, fine, good), got 'splendid'"


def test_labels_that_are_all_the_same(refused, tmp_path):
    path = tsv(tmp_path, HEADER, ROWS[0], ROWS[0])
    line = refused("tsv", f"--train_file={path}")
    assert line.endswith("expected two labels or more in column 'mood', got only 'good'")


TOPICS = ["anna saw a cat .\tanimal", "red .\tcolour; animal", "fine .\t"]


def several(folder, *rows, name="train.tsv") -> str:
    return tsv(folder, "review\ttopics", *rows, name=name)


def test_wrong_files_with_several_labels(refused, tmp_path):
    path = several(tmp_path, *TOPICS, "old .\tanimal;;colour")
    line = refused("labels", f"--train_file={path}")
    assert line == f"{path}:5: expected labels with ';' between them, got 'animal;;colour'"
    path = several(tmp_path, *TOPICS[:1], "red .\tcolour, animal")
    line = refused("labels", f"--train_file={path}")
    assert line.startswith(f"--train_file={path}: every row has one label in column 'topics', such")
    assert line.endswith("; change --label_separator or leave it out")
    for rows, label in ((("fine .\t",), ""), ((TOPICS[0], "fine .\t"), "animal")):
        path = several(tmp_path, *rows)
        line = refused("labels", f"--train_file={path}")
        assert line.endswith(f"expected two labels or more in column 'topics', got only {label!r}")


def test_a_label_that_only_the_development_data_has_among_several(refused, tmp_path):
    path = several(tmp_path, TOPICS[1], "red .\tcolour;food", name="dev.tsv")
    line = refused("labels", f"--eval_file={path}")
    assert line == f"{path}:3: expected a label (animal, colour, mood, name), got 'food'"


def test_labels_that_nobody_has_and_repeated_ones_are_fine(task_flags, finished, tmp_path):
    runner, flags = task_flags["labels"]
    path = several(tmp_path, *TOPICS, "blue .\t colour ;colour")
    start = f"--init_checkpoint={finished('labels').folder}"  # knows two more labels
    task = make_task(runner, *flags, start, f"--train_file={path}", f"--eval_file={path}")
    expected = [(1, 0, 0, 0), (1, 1, 0, 0), (0, 0, 0, 0), (0, 1, 0, 0)]
    assert [item.label for item in task.items["eval"]] == expected
    assert task.class_weights.tolist() == [1, 1, 1, 1]
    scores = task.evaluate([{"probabilities": np.full([4, 4], 0.5, np.float32)}])
    assert all(0 < value <= 1 for value in scores.values())


def test_a_diverged_model_has_scores(task_flags):
    runner, flags = task_flags["labels"]
    task = make_task(runner, *flags)
    scores = task.evaluate([{"probabilities": np.full([31, 4], np.nan, np.float32)}])
    assert all(0 <= value <= 1 for value in scores.values())


def test_a_model_of_one_label_is_none_of_several(finished, task_files, tmp_path):
    start = f"--init_checkpoint={finished('tsv').folder / 'model'}"
    flags = [f"--eval_file={task_files / 'labels' / 'dev.tsv'}", "--task_name=tsv", start]
    flags += ["--do_train=false", f"--output_dir={tmp_path}", "--label_separator=;"]
    with pytest.raises(UserError, match="--label_separator=; contradicts .* trained with --label_"):
        fine_tune_here("classifier", *flags)


WRONG_LABEL_FLAGS = {
    "--label_separator=; --kind=regression": "--label_separator and --kind=regression contradict",
    "--label_separator=; --task_name=MRPC": "--label_separator is for --task_name=tsv, not MRPC",
    "--label_separator=\t": "--label_separator must not be a tab or a line break",
    "--class_weights=good": "--class_weights must be `balanced` or label:weight pairs",
    "--class_weights=good:0": "--class_weights must be `balanced` or label:weight pairs",
    "--class_weights=good:2,:1": "got ':1'",
    "--class_weights=good:inf": "got 'good:inf'",
    "--class_weights=good:2,good:3": "--class_weights has the label 'good' twice",
    "--class_weights=good:2 --kind=regression": "--class_weights is for labels, but this task has",
    "--class_weights=good:2 --task_name=STS-B": "--class_weights is for labels, but this task has",
    "--class_weights=balanced --train_records=.": "--class_weights=balanced needs the labels of",
    "--class_weights=balanced --task_name=QNLI --pair_ranking": "--class_weights and --pair_ranking",
}


@pytest.mark.parametrize("flags", WRONG_LABEL_FLAGS)
def test_wrong_flags_of_labels(flags, refused):
    assert WRONG_LABEL_FLAGS[flags] in refused("tsv", *flags.split(" "))


def test_a_weight_of_an_unknown_label(refused):
    line = refused("tsv", "--class_weights=good:2,splendid:3")
    assert line == "--class_weights: expected labels (bad, fine, good), got 'splendid'"


def test_wrong_flags_of_the_softmax_over_padding(refused):
    line = refused("squad2.0", "--softmax_over_padding")
    assert line == "--softmax_over_padding is for --version=1.1; in 2.0 padding is masked"
    line = refused("squad1.1", "--softmax_over_padding", "--length_buckets=2")
    assert line == "--softmax_over_padding and --length_buckets=2 contradict each other"


def test_a_score_that_is_no_number(refused, tmp_path):
    path = tsv(tmp_path, HEADER, ROWS[0])
    line = refused("tsv", f"--train_file={path}", "--kind=regression")
    assert line == f"{path}:2: expected a number as score, got 'good'"


def test_a_row_with_a_tab_in_a_text(refused, tmp_path):
    path = tsv(tmp_path, HEADER, ROWS[0], "2\tthe old\ttree .\tbad")
    line = refused("tsv", f"--train_file={path}")
    assert line.startswith(f"{path}:3: expected 3 columns, got 4 columns")


@pytest.mark.parametrize("lines", [(), (HEADER,)], ids=["nothing", "a header"])
def test_an_empty_file(lines, refused, tmp_path):
    path = tsv(tmp_path, *lines)
    assert refused("tsv", f"--train_file={path}") == f"--train_file={path}: holds no rows"


def test_a_file_in_another_encoding(refused, tmp_path):
    path = tsv(tmp_path, HEADER, "1\tcafé good .\tgood", encoding="latin-1")
    assert refused("tsv", f"--train_file={path}") == f"{path}:2: is not UTF-8; convert the file"
    path = tsv(tmp_path, HEADER, ROWS[0], encoding="utf-16")
    line = refused("tsv", f"--train_file={path}")
    assert line == f"--train_file={path}: is UTF-16; save it as UTF-8"


def test_a_byte_order_mark_quotes_and_windows_line_ends_are_fine(task_flags, tmp_path):
    runner, flags = task_flags["tsv"]
    rows = ['1\tanna " saw\tgood', '2\t"the tree\tbad', "3\tit ''was\tfine", '4\t"" "\tbad']
    path = tsv(tmp_path, "\ufeff" + HEADER + "\r", *(row + "\r" for row in rows))
    task = make_task(runner, *flags, f"--train_file={path}", f"--eval_file={path}")
    texts = [item.text_a for item in task.items["train"]]
    assert texts == ['anna " saw', '"the tree', "it ''was", '"" "']
    assert [item.label for item in task.items["eval"]] == [2, 0, 1, 0]
    assert task.train_data.num_examples == 4


def test_a_glue_file_of_another_task(refused, task_files, tmp_path):
    (tmp_path / "MRPC").mkdir()
    for split in ("train", "dev"):
        shutil.copy(task_files / "glue" / "STS-B" / f"{split}.tsv", tmp_path / "MRPC")
    line = refused("mrpc", f"--data_dir={tmp_path}")
    assert line.startswith(
        f"{tmp_path / 'MRPC' / 'train.tsv'}: has no column '#1 String', only 'index'"
    )
    line = refused("mrpc", f"--data_dir={task_files / 'glue' / 'STS-B'}")
    assert line == f"{task_files / 'glue' / 'STS-B'}: is the folder of STS-B, not of MRPC"


# --- SQuAD and RACE


def squad(folder, task_files, change, version="2.0") -> str:
    """A copy of the training file in which `change` has changed the first paragraph."""
    values = json.loads((task_files / "squad" / f"train-v{version}.json").read_text())
    change(values["data"][0]["paragraphs"][0])
    path = folder / "train.json"
    path.write_text(json.dumps(values))
    return str(path)


def set_key(key, value):
    def change(paragraph):
        paragraph["qas"][1][key] = value

    return change


def shift_answer(paragraph):
    paragraph["qas"][0]["answers"][0]["answer_start"] += 1


WRONG_SQUAD = {
    "an offset that does not fit": (shift_answer, "should begin at character"),
    "an id that is there twice": (
        set_key("id", "train-0-11-0"),
        "'train-0-11-0' is in article 1, paragraph 1",
    ),
    "an answer to what has none": (set_key("is_impossible", True), "is impossible and has answers"),
    "no answers": (set_key("answers", []), '"answers" is empty; expected at least one answer'),
    "a number as a question": (set_key("question", 7), '"question" must be a string, got 7'),
    "no context": (lambda paragraph: paragraph.pop("context"), 'has no "context"'),
}


@pytest.mark.parametrize("case", WRONG_SQUAD)
def test_a_wrong_file_of_squad(case, refused, task_files, tmp_path):
    change, wanted = WRONG_SQUAD[case]
    path = squad(tmp_path, task_files, change)
    line = refused("squad2.0", f"--train_file={path}")
    assert line.startswith(f"--train_file={path}: article 1, paragraph 1") and wanted in line


def test_squad_2_read_as_1(refused, task_files):
    path = task_files / "squad" / "train-v2.0.json"
    line = refused("squad1.1", f"--train_file={path}")
    assert "is marked impossible, which only SQuAD 2.0 allows; choose version 2.0" in line


def test_a_file_of_squad_that_is_no_json(refused, tmp_path):
    for content, wanted in {"": "is empty; expected the JSON", "{": "not JSON ("}.items():
        (tmp_path / "train.json").write_text(content)
        assert wanted in refused("squad2.0", f"--train_file={tmp_path / 'train.json'}")


def test_a_byte_order_mark_in_squad_is_fine(task_flags, task_files, tmp_path):
    content = (task_files / "squad" / "train-v2.0.json").read_bytes()
    (tmp_path / "train.json").write_bytes(b"\xef\xbb\xbf" + content)
    runner, flags = task_flags["squad2.0"]
    task = make_task(runner, *flags, f"--train_file={tmp_path / 'train.json'}")
    assert len(task.items["train"]) == 9


def test_a_passage_of_race_with_three_options(refused, task_files, tmp_path):
    shutil.copytree(task_files / "RACE", tmp_path / "RACE")
    path = tmp_path / "RACE" / "train" / "high" / "1.txt"
    passage = json.loads(path.read_text())
    passage["options"][1].pop()
    path.write_text(json.dumps(passage))
    line = refused("race", f"--data_dir={tmp_path / 'RACE'}")
    assert line == f"{path}: options[1] must be 4 options, got 3"
    passage["options"][1].append("dora")
    passage["answers"][0] = "E"
    path.write_text(json.dumps(passage))
    line = refused("race", f"--data_dir={tmp_path / 'RACE'}")
    assert line == f"{path}: answers[0] must be one of A, B, C, D; got 'E'"
    shutil.rmtree(tmp_path / "RACE" / "dev")
    passage["answers"][0] = "D"
    path.write_text(json.dumps(passage))
    assert "has no folder dev; expected RACE's" in refused(
        "race", f"--data_dir={tmp_path / 'RACE'}"
    )


# --- Model and vocabulary


def test_a_vocabulary_that_is_not_the_models(refused, tiny_pretrained, tmp_path):
    other = train_spm(
        tmp_path / "other.model",
        ["anna saw bert"] * 3,
        model_type="char",
        vocab_size=20,
        hard_vocab_limit=False,
    )
    own = tiny_pretrained / "spiece.model"
    line = refused("tsv", f"--spm_model_file={other}")
    assert line == (
        f"--spm_model_file={other}: is not the vocabulary that came with the model, {own}; leave the flag out"
    )

    model = tmp_path / "model"
    shutil.copytree(tiny_pretrained, model)
    (without_checksums(model) / "spiece.model").unlink()
    line = refused("tsv", f"--init_checkpoint={model}", f"--spm_model_file={other}")
    assert line.startswith(f"{other}: has ") and "but the model's vocab_size is " in line
    assert line.endswith(
        "give the vocabulary that the model was pretrained with (--spm_model_file or --vocab_file)"
    )


def test_a_cased_vocabulary_for_a_model_without_case(refused, tiny_pretrained, tmp_path):
    model = load_pretrained(tiny_pretrained)
    save_pretrained(
        model, tmp_path, spm_model_file=str(tiny_pretrained / "spiece.model"), do_lower_case=False
    )
    line = refused("tsv", f"--init_checkpoint={tmp_path}")
    assert line == (f"--do_lower_case is true, but the model in {tmp_path} was trained with false")


def test_no_vocabulary_beside_the_model(refused, tiny_pretrained, tmp_path):
    shutil.copytree(tiny_pretrained, tmp_path / "model")
    (without_checksums(tmp_path / "model") / "spiece.model").unlink()
    line = refused("tsv", f"--init_checkpoint={tmp_path / 'model'}")
    assert (
        line
        == f"--spm_model_file or --vocab_file is required: there is none beside {tmp_path / 'model'}"
    )
    (tmp_path / "model" / "spiece.model").write_text("not a model")
    line = refused("tsv", f"--init_checkpoint={tmp_path / 'model'}")
    path = tmp_path / "model" / "spiece.model"
    assert line.startswith(f"{path}: is neither a SentencePiece model nor a WordPiece vocabulary")


def test_a_model_without_all_of_its_encoder(refused, tiny_pretrained, tmp_path):
    shutil.copytree(tiny_pretrained, tmp_path / "model")
    path = without_checksums(tmp_path / "model") / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    del tensors["albert.pooler.bias"]
    safetensors.numpy.save_file(tensors, path)
    line = refused("race", f"--init_checkpoint={tmp_path / 'model'}")
    assert "1 of the encoder's variables are not in it, bert/pooler/dense/bias the first" in line


def test_sequences_longer_than_the_models_positions(refused):
    line = refused("squad2.0", "--max_seq_length=65")
    assert line == "--max_seq_length (65) is above the model's max_position_embeddings 64"


def test_another_size_than_the_checkpoints(refused):
    line = refused("tsv", "--model=albert-base-v2", "--max_seq_length=33")
    assert "the model's configuration says" in line and "change --model" in line


def test_a_run_with_other_settings_in_the_folder(finished, task_flags):
    run = finished("race")
    for flag, wanted in {
        "--learning_rate=0.02": "holds a run with learning_rate=0.01, not 0.02",
        "--max_seq_length=47": "holds a run with max_seq_length=48, not 47",
    }.items():
        with pytest.raises(UserError, match=wanted):
            fine_tune_here(run.runner, *run.flags, flag, f"--output_dir={run.folder}")


def test_other_training_data_under_the_same_name(finished, task_files, tmp_path):
    run = finished("tsv")
    path = tmp_path / "train.tsv"
    path.write_text((task_files / "tsv" / "train.tsv").read_text().replace("anna", "bert"))
    with pytest.raises(UserError, match="holds a run with train_sha256="):
        fine_tune_here(run.runner, *run.flags, f"--train_file={path}", f"--output_dir={run.folder}")


# --- Flags: refused before TensorFlow is imported, with status 2

GLUE = ["--task_name=RTE", "--data_dir={tasks}/glue"]
OWN = ["--task_name=tsv", "--train_file={tasks}/tsv/train.tsv", "--text_columns=review"]
MODEL = ["--init_checkpoint={model}", "--output_dir=run"]
ANSWER = [
    "--do_train=false",
    "--do_eval=false",
    "--do_predict",
    "--predict_file={tasks}/squad/questions.json",
]
# The model has 64 positions, the default length of a question.
SHORT_MODEL = [*MODEL, "--max_query_length=9"]
WRONG_FLAGS = {
    "no model": (
        "classifier",
        [*GLUE, "--output_dir=run"],
        "--model or --albert_config_file or --init_checkpoint",
    ),
    "no vocabulary": (
        "classifier",
        [*GLUE, "--output_dir=run", "--model=albert-base-v2"],
        "--spm_model_file or --vocab_file is required without --init_checkpoint",
    ),
    "no task": ("classifier", MODEL, "--task_name is required: GLUE task"),
    "no folder": (
        "classifier",
        ["--task_name=RTE", *MODEL],
        "--data_dir is required: the folder of RTE",
    ),
    "a folder that is not there": (
        "classifier",
        ["--task_name=RTE", "--data_dir=nowhere", *MODEL],
        "--data_dir=nowhere: no such folder",
    ),
    "no text columns": (
        "classifier",
        [*OWN[:2], *MODEL],
        "--text_columns is required with --task_name=tsv",
    ),
    "three text columns": (
        "classifier",
        [*OWN, "--text_columns=a,b,c", *MODEL],
        "--text_columns must be one or two names, got 'a,b,c'",
    ),
    "no training data": (
        "classifier",
        ["--task_name=tsv", "--text_columns=review", *MODEL],
        "--train_file is required with --task_name=tsv",
    ),
    "a file for a task of GLUE": (
        "classifier",
        [*GLUE, "--train_file={tasks}/tsv/train.tsv", *MODEL],
        "--train_file and --eval_file belong to --task_name=tsv",
    ),
    "nothing to do": (
        "squad",
        ["--do_train=false", "--do_eval=false", *MODEL],
        "--do_eval or --do_train must be true: there is nothing to do",
    ),
    "nothing to train on": ("squad", SHORT_MODEL, "--train_file is required to train"),
    "nothing to answer": (
        "squad",
        ["--do_train=false", "--do_eval=false", "--do_predict", *SHORT_MODEL],
        "--predict_file is required with --do_predict",
    ),
    "a file that is not there": (
        "squad",
        ["--train_file=nowhere.json", *SHORT_MODEL],
        "--train_file=nowhere.json: no such file",
    ),
    "a threshold that is no number": (
        "squad",
        ["--null_threshold=high", *MODEL],
        "--null_threshold must be `best` or a number, got 'high'",
    ),
    "no room for the context": (
        "squad",
        ["--max_seq_length=64", *MODEL],
        "--max_query_length (64) leaves no room for text in --max_seq_length=64",
    ),
    "evaluations that leave out examples": (
        "race",
        ["--data_dir={tasks}/RACE", "--max_eval_steps=5", *MODEL],
        "--max_eval_steps must be 0, got 5",
    ),
    "several runs without training": (
        "race",
        ["--data_dir={tasks}/RACE", "--num_runs=3", "--do_train=false", *MODEL],
        "--num_runs (3) needs --do_train",
    ),
    "a preset without a row": (
        "classifier",
        ["--task_name=tsv", "--preset=paper", *MODEL],
        "--preset=paper has no row for tsv: it knows cola",
    ),
    "a member that is not there": (
        "race",
        ["--data_dir={tasks}/RACE", "--ensemble=runs/a,runs/b", *MODEL],
        "--ensemble=runs/a: no such file",
    ),
    "a warm-up beyond the end": (
        "race",
        ["--data_dir={tasks}/RACE", "--num_train_steps=10", "--num_warmup_steps=11", *MODEL],
        "--num_warmup_steps (11) must end within the 10 training steps",
    ),
    "a released model by its name": (
        "race",
        ["--data_dir={tasks}/RACE", "--output_dir=run", "--init_checkpoint=albert-base-v2"],
        "--init_checkpoint=albert-base-v2: no such file or folder; the released model is hf:albert/albert-base-v2",
    ),
    "sequences longer than the model's positions": (
        "race",
        ["--data_dir={tasks}/RACE", *MODEL, "--max_seq_length=65"],
        "--max_seq_length (65) is above the model's max_position_embeddings 64",
    ),
    "another length than the run's": (
        "squad",
        [*ANSWER, "--output_dir={run}", "--max_seq_length=41"],
        "--max_seq_length=41 contradicts {run}, which was trained with --max_seq_length=40; use that",
    ),
    "another version than the initial run's": (
        "squad",
        [*ANSWER, "--output_dir=new", "--init_checkpoint={run}", "--version=2.0"],
        "--version=2.0 contradicts {run}, which was trained with --version=1.1",
    ),
    "another case than the checkpoint's": (
        "squad",
        [
            *ANSWER,
            "--output_dir=new",
            "--init_checkpoint={run}/checkpoints/step-3",
            "--nodo_lower_case",
        ],
        "--do_lower_case=false contradicts {run}/checkpoints/step-3, which was trained with --do_lower_case=true",
    ),
    "another length than the ensemble's": (
        "squad",
        [*ANSWER, "--output_dir=new", "--ensemble={run},{run}", "--doc_stride=14"],
        "--doc_stride=14 contradicts {run}, which was trained with --doc_stride=13",
    ),
    "evaluation of a finished run without a file": (
        "squad",
        [
            "--do_train=false",
            "--do_predict",
            "--predict_file={tasks}/squad/questions.json",
            "--output_dir={run}",
        ],
        "--eval_file is required to evaluate; to predict only, --do_eval=false",
    ),
    "a near miss": ("race", ["--max_qa_len=3"], "did you mean --max_qa_length?"),
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


@pytest.mark.parametrize("case", WRONG_FLAGS)
def test_a_wrong_flag(case, task_files, tiny_pretrained, recorded_run, no_tensorflow):
    runner, flags, wanted = WRONG_FLAGS[case]
    names = {"tasks": task_files, "model": tiny_pretrained, "run": recorded_run}
    flags, wanted = [flag.format(**names) for flag in flags], wanted.format(**names)
    process = run_script(f"run_{runner}.py", *flags, **no_tensorflow)
    line = the_line(process)
    assert process.returncode == 2
    assert line.startswith(f"run_{runner}.py: ") and wanted in line


def test_a_right_command_comes_to_tensorflow(task_files, tiny_pretrained, no_tensorflow):
    flags = [flag.format(tasks=task_files, model=tiny_pretrained) for flag in [*OWN, *MODEL]]
    process = run_script("run_classifier.py", *flags, **no_tensorflow)
    assert "TensorFlow imported" in process.stderr


def test_a_task_that_is_not_known(refused):
    line = refused("mrpc", "--task_name=MRCP")
    assert line.startswith("--task_name must be one of CoLA, SST-2, MRPC, STS-B") and line.endswith(
        "got 'MRCP'"
    )


def test_what_the_script_prints_and_its_status(task_flags, tmp_path):
    runner, flags = task_flags["race"]
    process = run_script(
        f"run_{runner}.py", *flags, "--max_seq_length=65", f"--output_dir={tmp_path / 'run'}"
    )
    line = "run_race.py: --max_seq_length (65) is above the model's max_position_embeddings 64"
    assert the_line(process) == line
    assert process.returncode == 2
    assert not (tmp_path / "run").exists()


def test_a_wrong_flag_takes_less_than_a_second_of_work(task_files):
    times = []
    for _ in range(3):
        started = time.monotonic()
        process = run_script("run_race.py", "--max_qa_len=3")
        times.append(time.monotonic() - started)
        assert process.returncode == 2
    assert min(times) < 1
