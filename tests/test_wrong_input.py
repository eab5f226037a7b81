"""Wrong input: one line that names the flag or the file and what to change; nothing is written.

docs/reference/trouble.md describes such lines.
"""

import gzip
import json
import shutil

import pytest
import safetensors.numpy

from albert_tf import UserError, save_pretrained
from albert_tf.model.heads import AlbertForPreTraining
from tests import helpers
from tests.helpers import TINY, error_of, fine_tune_here, fine_tuning_settings, pretrain_here

pytestmark = [
    pytest.mark.usefixtures("eagerly"),
    pytest.mark.filterwarnings("ignore:.*run_functions_eagerly.*:UserWarning"),
]


@pytest.fixture
def pretraining(records_file, config_file, tmp_path):
    """A function that pretrains with some flags more and returns the line of the error; nothing may be written."""
    flags = [f"--input_file={records_file}", f"--albert_config_file={config_file}"]
    flags += ["--train_batch_size=6", "--num_train_steps=4", "--num_warmup_steps=1"]

    def run(*more):
        line = error_of(pretrain_here, *flags, f"--output_dir={tmp_path / 'run'}", *more)
        assert not (tmp_path / "run").exists()
        return line

    return run


PRETRAIN = "pretrain --output_dir=x --model=albert-base-v2"
GLUE = "classifier --init_checkpoint={model} --output_dir=x --task_name=RTE --data_dir={tasks}/glue"
OWN = (
    "classifier --init_checkpoint={model} --output_dir=x --task_name=tsv"
    " --train_file={tasks}/tsv/train.tsv"
)
REVIEWS = f"{OWN} --text_columns=review --label_column=mood --eval_file={{tasks}}/tsv/dev.tsv"
SQUAD = "squad --init_checkpoint={model} --output_dir=x --max_query_length=9"
RACE = "race --init_checkpoint={model} --output_dir=x --data_dir={tasks}/RACE"
CREATE_X = "data_prep.create_pretraining_data --output_dir=x --input_file={tasks}"
EXPORT = "export --output_dir=x --model={model}"
# Flags, and what the line must say.
WRONG_FLAGS = {
    PRETRAIN: "--input_file is required to train",
    "pretrain --output_dir=x --input_file={tasks}": "--model or --albert_config_file",
    f"{PRETRAIN} --do_train=false": "--eval_file is required",
    f"{PRETRAIN} --init_checkpoint=albert_base": "the released model is hf:albert/albert-base-v2",
    f"{PRETRAIN} --albert_config_file={{tasks}}": "--model and --albert_config_file contradict",
    f"{PRETRAIN} --tpu_name=pod --distribution_strategy=mirrored": "--tpu_name contradicts",
    f"{PRETRAIN} --num_train_steps=5 --num_warmup_steps=6": "--num_warmup_steps (6) must end",
    f"{PRETRAIN} --do_train=false --do_eval=false": "--do_eval or --do_train must be true",
    f"{PRETRAIN} --learning_rate=0": "--learning_rate must be above 0, got 0.0",
    f"{PRETRAIN} --beta_2=1": "--beta_2 must be below 1, got 1.0",
    f"{PRETRAIN} --learning_rate_factors=pooler:1": "--learning_rate_factors is for embeddings",
    f"{PRETRAIN} --learning_rate_factors=embeddings": "must be part:factor pairs",
    f"{PRETRAIN} --train_minutes=1 --deterministic": "--train_minutes and --deterministic contrad",
    f"{CREATE_X} --max_seq_length=4": "--max_seq_length must be at least 5",
    f"{CREATE_X} --masking=dynamic --record_format=full": "dynamic needs --record_format=packed",
    f"{CREATE_X} --pipeline_options=--x": "--pipeline_options contradicts --runner=local",
    f"{CREATE_X} --runner=dask --pipeline_options=--x": "--pipeline_options contradicts --runner=dask",
    f"{CREATE_X} --dask_scheduler=tcp://a:1": "--dask_scheduler contradicts --runner=local",
    f"{CREATE_X} --runner=portable --pipeline_options=--a='": "cannot be split into options (No clos",
    "data_prep.train_sentencepiece --output_prefix=x --input_file={tasks} --vocab_size=13": (
        "--vocab_size must be at least 14"
    ),
    f"{EXPORT} --format=tflite --dtype=bfloat16": "--dtype=bfloat16 contradicts",
    f"{EXPORT} --format=onnx --version=2": "--version=2 contradicts --format=onnx",
    f"{EXPORT} --quantization=int8": "--quantization=int8: for saved_model",
    f"{EXPORT} --format=tflite --quantization=int8_weights": "expected one of none, int8",
    f"{EXPORT} --format=onnx --block_size=64": "only --quantization=int4 has blocks",
    f"{EXPORT} --format=onnx --quantization=int4 --block_size=48": "expected 16, 32, 64, 128 or",
    f"{EXPORT} --max_seq_length=3": "--max_seq_length must be at least 4, got 3",
    "classifier --output_dir=x": "--task_name is required",
    "classifier --output_dir=x --task_name=MRCP": "--task_name must be one of CoLA, SST-2",
    "classifier --output_dir=x --task_name=RTE --data_dir={tasks}/glue": "--init_checkpoint is req",
    "classifier --output_dir=x --predict_file={tasks}/tsv/dev.tsv": "--output_dir=x: holds no run",
    "squad --output_dir=x --do_train=false --do_predict": "--output_dir=x: holds no run",
    f"{GLUE} --data_dir=nowhere": "--data_dir=nowhere",
    f"{GLUE} --train_file={{tasks}}/tsv/train.tsv": "--train_file and --eval_file belong to",
    f"{GLUE} --label_separator=;": "--label_separator is for --task_name=table",
    f"{GLUE} --init_checkpoint= --model=albert-base-v2": "--spm_model_file or --vocab_file",
    OWN: "--text_columns is required",
    f"{REVIEWS} --text_columns=a,b,c": "--text_columns must be one or two names, got 'a,b,c'",
    f"{REVIEWS} --text_columns=review,mood": "--label_column=mood is in --text_columns",
    f"{REVIEWS} --label_separator=; --kind=regression": "--label_separator and --kind=regression",
    f"{REVIEWS} --class_weights=balanced --kind=regression": "--class_weights is for labels",
    f"{REVIEWS} --text_columns=review,name --windows": "--windows is for --task_name=table with one",
    f"{REVIEWS} --preset=paper": "--preset=paper has no row for table",
    f"{REVIEWS} --seed=2147483647 --num_runs=2": "--num_runs (2) leads to seeds above",
    f"{REVIEWS} --max_seq_length=65": "--max_seq_length (65)",  # of 64 positions
    SQUAD: "--train_file is required to train",
    f"{SQUAD} --do_train=false --do_eval=false --do_predict": "--predict_file is required",
    f"{SQUAD} --null_threshold=high": "--null_threshold must be `best` or a number",
    f"{RACE} --num_runs=3 --do_train=false": "--num_runs (3) needs --do_train",
}


@pytest.mark.parametrize("command", WRONG_FLAGS)
def test_a_wrong_flag(command, task_files, tiny_pretrained):
    program, *flags = command.format(tasks=task_files, model=tiny_pretrained).split(" ")
    if program == "pretrain":
        line = error_of(pretrain_here, *flags)
    else:
        parse = fine_tuning_settings if program in helpers.RUNNERS else helpers.program_here
        line = error_of(parse, program, *flags)
    assert WRONG_FLAGS[command] in line


def test_a_model_of_another_program(tiny_pretrained, tmp_path):
    model = shutil.copytree(tiny_pretrained, tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"finetuning_task": "tagging"}))
    flags = [f"--init_checkpoint={model}", "--output_dir=x", "--do_train=false"]
    line = error_of(fine_tuning_settings, "classifier", *flags)
    assert f"{model}: is a model of tagging, which another program uses" in line


@pytest.mark.parametrize(
    ("program", "flags", "message"),
    [
        ("run_pretraining.py", ["--output_dir=x", "--train_batchsize=8"], "train_batch_size"),
        ("run_race.py", ["--max_qa_len=3"], "max_qa_length"),
        ("run_race.py", f"{RACE} --max_seq_length=65".split()[1:], "--max_seq_length (65)"),
        ("-m data_prep.split_sentences", ["--input_file=README.md"], "--output_file"),
    ],
)
def test_it_stops_before_tensorflow_is_imported(
    program, flags, message, no_tensorflow, task_files, tiny_pretrained
):
    names = {"tasks": task_files, "model": tiny_pretrained}
    process = helpers.run_script(
        program, *(flag.format(**names) for flag in flags), **no_tensorflow
    )
    assert message in helpers.the_line(process) and process.returncode == 2


def squad_file(text: object = "Anna", start: object = 0) -> str:
    """A file of SQuAD 2.0 with one question and one answer."""
    answers = [{"text": text, "answer_start": start}]
    question = {"id": "a", "question": "Who?", "answers": answers, "is_impossible": False}
    return json.dumps(
        {"data": [{"paragraphs": [{"context": "Anna saw Bert.", "qas": [question]}]}]}
    )


def race_file(**changes: object) -> str:
    """A file of RACE, changed."""
    passage = {"article": "Anna saw Bert.", "questions": ["Who _ ?"], "answers": ["A"]}
    return json.dumps({**passage, "options": [["saw", "b", "c", "d"]], **changes})


DEEP = "[" * 100_000
TABLE = "review\tlabel\n"
TSV = "classifier --task_name=tsv --text_columns=review --train_file={path}"
SCORES = f"{TSV} --kind=regression"
SQUAD_2 = "squad --version=2.0 --max_query_length=9 --train_file={path}"
RACE_HIGH = "race --data_dir={folder} --level=high"
CREATE = "data_prep.create_pretraining_data --output_dir={folder}/out --input_file={path}"
CREATE += " --num_workers=1 --spm_model_file={spm}"
SPLIT = "data_prep.split_sentences --output_file={folder}/out/x --input_file={path} --num_workers=1"
TRAIN = "data_prep.train_sentencepiece --output_prefix={folder}/out/x --input_file={path}"
SAMPLE = (
    "data_prep.sample_corpus --output_file={folder}/out/x --input_file={folder} --num_workers=1"
)
# (program, content of its file, what the line says about it; "" if the file is read).
WRONG_FILES = [
    (TSV, f"{TABLE} \tgood\n\tbad\n", "column 'review'"),
    (TSV, f"{TABLE}a\tgood\n".encode("utf-16"), "utf-8"),
    (TSV, f"{TABLE}a\tgood\nb\tbad\n\n\n", ""),
    (TSV, f"{TABLE}a\u2028\x85a\tgood\nb\tbad\n", ""),
    (SCORES, f"{TABLE}a\t1\nb\t\n", "row 2 (line 3): expected a number as score, got ''"),
    (SQUAD_2, DEEP, "not usable as JSON"),
    (SQUAD_2, squad_file().replace("Bert", r"\ud83d"), "surrogates not allowed"),
    (SQUAD_2, squad_file(start=0.0), "is not in the format of SQuAD"),
    (SQUAD_2, squad_file(text=7), "question 'a' has a value of another type"),
    (SQUAD_2, '{"data": 7}', "is not in the format of SQuAD"),
    (RACE_HIGH, race_file(questions=[], options=[], answers=[]), "no questions"),
    (CREATE, "Anna saw Bert.\rBert ran.\r", "end in CR alone"),
    (CREATE, "", "file.txt: holds no text"),
    (CREATE, "\n\n \n", "file.txt: holds no text"),
    (f"{CREATE} --single_segment=clean", "a\n\na\n", "file.txt: no document has two sentences"),
    (f"{CREATE} --num_shards=99", "a b .\nc .\n", "--num_shards=99: the text gives 40 examples"),
    (f"{SPLIT} --invalid_utf8=replace", b"ab\0c\n", "file.txt: is binary"),
    (SPLIT, gzip.compress(b"One is. " * 99)[:20], "file.txt: its gzip data is cut off"),
    (SPLIT, '<doc id="1"\n', "file.txt:1: expected a line <doc"),
    (SPLIT, '{"text": "A b."}\n{"text"\n', "file.txt:2: not JSON"),
    (
        SPLIT,
        '{"body": "A b."}\n',
        "file.txt:1: expected an object with a text 'text'; --text_field",
    ),
    (SPLIT, "\n \n\n", "no document is left: the input is empty"),
    (SPLIT, "One sentence only.", "1 with fewer than 2 sentences (--min_sentences)"),
    (TRAIN, "\n  \n", "no sentence there"),
    (TRAIN, b"Fine.\nA caf\xe9.\n", "file.txt, line 2: not UTF-8"),
    (SAMPLE, "Text.", "no Python file there"),
    (f"{CREATE} --spm_model_file={{path}}", "no model", "is neither a SentencePiece model nor"),
]


@pytest.mark.parametrize("case", range(len(WRONG_FILES)))
def test_a_file_of_another_form(case, tiny_pretrained, tmp_path):
    command, content, reason = WRONG_FILES[case]
    if command == RACE_HIGH:
        path = tmp_path / "train" / "high" / "1.txt"
    elif "squad" in command:
        path = tmp_path / "file.json"
    elif "task_name" in command:
        path = tmp_path / "file.tsv"
    else:
        path = tmp_path / "file.txt"
    helpers.write_files(tmp_path, {str(path.relative_to(tmp_path)): content})
    spm = tiny_pretrained / "spiece.model"
    program, *flags = command.format(path=path, folder=tmp_path, spm=spm).split(" ")
    if program in helpers.RUNNERS:
        flags += [f"--init_checkpoint={tiny_pretrained}", "--output_dir=x", "--do_eval=false"]
        source = helpers.RUNNERS[program].source(fine_tuning_settings(program, *flags)[-1])
        if not reason:
            assert len(source.read("train")) == 2
            return
        line = error_of(source.read, "train")
    else:
        line = error_of(helpers.program_here, program, *flags)
        assert {file.name for file in tmp_path.iterdir()} <= {path.name, "out"}
        assert not list(tmp_path.glob("out/x*"))
    assert reason in line
    assert str(tmp_path) in line or line.startswith(("no document is left: ", "--num_shards"))


def test_labels_and_files_of_another_task(task_flags, task_files, tmp_path):
    (tmp_path / "dev.tsv").write_text("review\tmood\nfine .\tsplendid\n")
    glue = task_files / "glue"
    (tmp_path / "MRPC").mkdir()
    shutil.copy(glue / "STS-B" / "train.tsv", tmp_path / "MRPC")
    shutil.copytree(task_files / "RACE" / "train", tmp_path / "RACE" / "train")
    squad = f"--train_file={task_files / 'squad' / 'train-v2.0.json'}"
    for task, flag, message in (
        ("tsv", f"--eval_file={tmp_path / 'dev.tsv'}", "expected a label (bad, fine, good), got"),
        ("mrpc", f"--data_dir={tmp_path}", "has no column '#1 String'"),
        ("mrpc", f"--data_dir={glue / 'STS-B'}", "is the folder of STS-B, not of MRPC"),
        ("squad1.1", squad, "which needs --version=2.0"),
        ("race", f"--data_dir={tmp_path / 'RACE'}", "has no folder dev"),
    ):
        runner, flags = task_flags[task]
        out = tmp_path / "run"
        assert message in error_of(fine_tune_here, runner, *flags, flag, f"--output_dir={out}")
        assert not out.exists()


def test_records_that_do_not_fit(pretraining, records_file, config_file, tmp_path):
    big = helpers.write_records(
        tmp_path / "big.tfrecord", helpers.random_features(30, vocab_size=120)
    )
    other = helpers.random_features(6)
    del other["masked_lm_ids"]
    schema = helpers.write_records(tmp_path / "other.tfrecord", other)
    (tmp_path / "text.tfrecord").write_text("just text, and no record")
    (tmp_path / "empty").mkdir()
    for flag, message in {
        f"--input_file={big}": "token id 119, but the model has 17 positions and vocab_size 101",
        f"--input_file={schema}": "has no feature 'masked_lm_ids'",
        f"--input_file={tmp_path / 'text.tfrecord'}": "text.tfrecord",
        f"--input_file={tmp_path / 'empty'}": "no record files there",
        "--max_seq_length=12": "max_seq_length must be the same everywhere: --input_file has 11",
        "--max_predictions_per_seq=5": "max_predictions_per_seq must be the same everywhere",
        "--train_batch_size=8 --gradient_accumulation_steps=3": "--train_batch_size must be a",
        "--eval_batch_size=7 --distribution_strategy=mirrored": "--eval_batch_size must be a mul",
        "--distribution_strategy=tpu --tpu_name=local": "this machine has no TPU",
        "--distribution_strategy=multi_worker_mirrored": "needs TF_CONFIG",
    }.items():
        assert message in pretraining(*flag.split(" "))
    config_file.write_text(TINY.replace(max_position_embeddings=10).to_json_string())
    assert "has 11 tokens in a row" in pretraining()
    (records_file.parent / "metadata.json").write_text("{")
    assert "metadata.json" in pretraining()


def test_records_of_another_casing(tiny_pretrained, tmp_path):
    helpers.write_files(
        tmp_path, {"text.txt": "Anna saw Bert.\nBert saw Anna.\n\nAnna left.\nBert saw.\n"}
    )
    flags = [f"--input_file={tmp_path / 'text.txt'}", f"--output_dir={tmp_path / 'records'}"]
    flags += [f"--spm_model_file={tiny_pretrained / 'spiece.model'}", "--max_seq_length=16"]
    flags.append("--num_workers=1")
    helpers.program_here("data_prep.create_pretraining_data", *flags, "--do_lower_case=false")
    flags = [f"--input_file={tmp_path / 'records'}", f"--init_checkpoint={tiny_pretrained}"]
    flags += [f"--output_dir={tmp_path / 'run'}", "--num_train_steps=4", "--num_warmup_steps=1"]
    message = "do_lower_case must be the same everywhere: --input_file has False, the model has"
    assert message in error_of(pretrain_here, *flags, "--train_batch_size=2")


def test_a_model_that_does_not_fit(pretraining, task_flags, tiny_pretrained, tmp_path):
    runner, flags = task_flags["tsv"]
    spm = tiny_pretrained / "spiece.model"
    changes = {"model_type": "char", "vocab_size": 20, "hard_vocab_limit": False}
    other = helpers.train_spm(tmp_path / "other.model", ["anna saw bert"] * 3, **changes)
    bare = tmp_path / "bare"
    half = tmp_path / "half"
    shutil.copytree(tiny_pretrained, bare)
    (bare / "spiece.model").unlink()
    save_pretrained(AlbertForPreTraining(TINY, seed=3), half, spm_model_file=str(spm))
    tensors = safetensors.numpy.load_file(half / "model.safetensors")
    del tensors["albert.pooler.weight"]
    safetensors.numpy.save_file(tensors, half / "model.safetensors")
    for flag, message in {
        f"--spm_model_file={other}": "is not the vocabulary that came with the",
        f"--init_checkpoint={bare} --spm_model_file={other}": "but the model's vocab_size is ",
        f"--init_checkpoint={bare}": "--spm_model_file or --vocab_file is required",
        "--do_lower_case=false": "--do_lower_case",
        "--model=albert-base-v2": "that of --model",
    }.items():
        flag = [*flag.split(" "), f"--output_dir={tmp_path / 'run'}"]
        assert message in error_of(fine_tune_here, runner, *flags, *flag)
    assert "1 of the encoder's variables" in pretraining(f"--init_checkpoint={half}")


def test_a_folder_that_is_no_run(finished, task_files, pretraining, tiny_pretrained, tmp_path):
    file = tmp_path / "file"
    file.write_text("no folder")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("years of work")
    for folder, message in {
        file: f"--output_dir={file}: cannot be written",
        file / "run": f"--output_dir={file / 'run'}: cannot be written",
        tmp_path / "other": "contains files that do not belong to a run",
        tiny_pretrained: "contains files that do not belong to a run",
    }.items():
        assert message in pretraining(f"--output_dir={folder}")
    assert (tmp_path / "other" / "thesis.txt").read_text() == "years of work"
    run = finished("tsv")
    path = tmp_path / "train.tsv"
    path.write_text((task_files / "tsv" / "train.tsv").read_text().replace("anna", "bert"))
    for flag, message in {
        "--learning_rate=0.02": "contains a run with learning_rate=0.01, not 0.02",
        f"--train_file={path}": "contains a run with train_sha256=",
        "--do_train=false --max_seq_length=32": "--max_seq_length=32 contradicts",
        "--do_train=false --label_separator=;": "--label_separator=; contradicts",
    }.items():
        with pytest.raises(UserError, match=message.replace("(", r"\(")):
            folder = f"--output_dir={run.folder}"
            fine_tune_here(run.runner, *run.flags, *flag.split(" "), folder)
