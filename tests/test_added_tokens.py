"""Everything that has a tokenizer has its added tokens: models in each layout, exports, records, runs."""

import json
import shutil

import pytest

from albert_tf import Tokenizer, convert, load_predictor, save_pretrained
from albert_tf.data_prep.pretraining.make_records import create_pretraining_data
from albert_tf.data_prep.pretraining.settings import PretrainingDataSettings
from albert_tf.export import export_model
from albert_tf.model.heads import AlbertForSequenceClassification
from albert_tf.text.added_tokens import PLAIN, SPECIAL, AddedToken
from tests.helpers import TINY, error_of, fine_tune_here, noisy, pretrain_here, train_spm
from tests.text.texts import write_vocabulary

TEXTS = ["a cat [E1] sat", "a dog[E1]a [e1]", "two WORDS, Two  Words", "ｔwo words"]


def with_added_tokens(path) -> Tokenizer:
    """A vocabulary to which a special token and one of two words were added."""
    size = Tokenizer.from_file(path).vocab_size
    added = [AddedToken("[E1]", size, SPECIAL), AddedToken("Two Words", size + 1, PLAIN)]
    with open(path, "rb") as file:
        return Tokenizer.from_bytes(file.read(), added_tokens=added)


@pytest.fixture(scope="module", params=["spiece.model", "vocab.txt"])
def tokenizer(request, tmp_path_factory) -> Tokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / request.param
    if request.param == "vocab.txt":
        return with_added_tokens(write_vocabulary(path))
    return with_added_tokens(train_spm(path, ["a cat sat, a dog sat"] * 9, vocab_size=15))


@pytest.fixture(scope="module")
def model(tokenizer, tmp_path_factory) -> str:
    """The folder of a classifier."""
    config = TINY.replace(vocab_size=tokenizer.vocab_size).with_labels(["x", "y", "z"], "tsv")
    folder = tmp_path_factory.mktemp("model") / "model"
    task = {"max_seq_length": 14}
    classifier = noisy(AlbertForSequenceClassification(config, seed=3))
    save_pretrained(classifier, folder, spm_model_file=tokenizer, task=task)
    return str(folder)


def assert_same(found: Tokenizer, expected: Tokenizer) -> None:
    assert (found.content, found.added_tokens) == (expected.content, expected.added_tokens)
    assert found.sha256 == expected.sha256
    for text in TEXTS:
        assert found.encode_with_offsets(text) == expected.encode_with_offsets(text)


def test_a_folder_lists_them_as_transformers_does(model, tokenizer):
    assert_same(Tokenizer.from_pretrained(model), tokenizer)
    with open(f"{model}/tokenizer_config.json", encoding="utf-8") as file:
        described = json.load(file)["added_tokens_decoder"]
    how = {"single_word": False, "lstrip": False, "rstrip": False}
    two_words = {"content": "Two Words", **how, "normalized": True, "special": False}
    assert described[str(tokenizer.vocab_size - 1)] == two_words
    special = {"content": "[E1]", **how, "normalized": False, "special": True}
    assert described[str(tokenizer.vocab_size - 2)] == special
    with open(f"{model}/tokenizer.json", encoding="utf-8") as file:
        listed = json.load(file)["added_tokens"]
    assert {str(token.pop("id")): token for token in listed} == described


def test_a_conversion_to_tf1_and_back_keeps_them(model, tokenizer, tmp_path):
    for source, name, format in [(model, "tf1", "tf1"), (tmp_path / "tf1", "hf", "hf")]:
        folder = tmp_path / name
        convert.main(
            convert.ConvertSettings(model=str(source), output_dir=str(folder), format=format)
        )
        assert_same(Tokenizer.from_pretrained(folder), tokenizer)


def test_an_export_answers_with_them(model, tokenizer, tmp_path):
    export_model(model, str(tmp_path / "onnx"), format="onnx")
    exported = load_predictor(str(tmp_path / "onnx"))
    assert_same(exported.tokenizer, tokenizer)
    expected = load_predictor(model).predict(TEXTS)
    for answer, answer_of_model in zip(exported.predict(TEXTS), expected, strict=True):
        assert answer["probabilities"] == pytest.approx(answer_of_model["probabilities"], abs=1e-5)


def test_an_export_replaces_those_of_an_earlier_one(model, tokenizer, tmp_path):
    plain = Tokenizer.from_bytes(tokenizer.content)
    config = TINY.replace(vocab_size=plain.vocab_size).with_labels(["x", "y", "z"], "tsv")
    classifier = AlbertForSequenceClassification(config, seed=3)
    task = {"max_seq_length": 14}
    save_pretrained(classifier, tmp_path / "plain", spm_model_file=plain, task=task)
    for source, expected in [(model, tokenizer), (str(tmp_path / "plain"), plain)]:
        export_model(source, str(tmp_path / "onnx"), format="onnx", overwrite=True)
        assert_same(load_predictor(str(tmp_path / "onnx")).tokenizer, expected)


def test_an_export_beside_a_model_of_transformers_leaves_its_settings(model, tokenizer, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**settings, "chat_template": "of others"}), "utf-8")
    before = path.read_bytes()
    export_model(str(folder), str(folder), format="onnx")
    assert path.read_bytes() == before
    assert_same(load_predictor(str(folder)).tokenizer, tokenizer)

    settings["added_tokens_decoder"][str(tokenizer.vocab_size - 1)]["content"] = "[other]"
    path.write_text(json.dumps(settings), "utf-8")
    (folder / "tokenizer.json").unlink()  # which lists them, too
    line = error_of(export_model, model, str(folder), format="onnx", overwrite=True)
    assert "lists other added tokens than the model" in line


def test_what_would_not_find_them_is_one_line(model, tokenizer, tmp_path):
    assert "added tokens such as [E1]" in error_of(export_model, model, str(tmp_path / "saved"))
    if tokenizer.file_name == "spiece.model":
        settings = convert.ConvertSettings(
            model=model, output_dir=str(tmp_path / "keras"), format="keras_hub"
        )
        line = error_of(convert.main, settings)
        assert "added tokens such as [E1], after which keras-hub would give other ids" in line


def test_records_made_with_other_added_tokens_are_rejected(tokenizer, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("a cat [E1] sat.\na dog sat.\na cat sat.\n\n" * 4)
    tokenizer.save_pretrained(tmp_path / "own")
    plain = tmp_path / tokenizer.file_name
    plain.write_bytes(tokenizer.content)
    own = tmp_path / "own" / tokenizer.file_name
    options = {"max_seq_length": 24, "max_predictions_per_seq": 4, "num_workers": 1}
    options |= {"input_file": str(text), "output_dir": str(tmp_path / "records")}
    create_pretraining_data(PretrainingDataSettings(spm_model_file=str(own), **options))
    config = tmp_path / "albert_config.json"
    config.write_text(TINY.replace(vocab_size=tokenizer.vocab_size).to_json_string())
    flags = [f"--input_file={tmp_path}/records", f"--output_dir={tmp_path}/run", "--do_eval=false"]
    flags.append(f"--albert_config_file={config}")
    line = error_of(pretrain_here, *flags, f"--spm_model_file={plain}")
    assert line.startswith("spm_sha256 must be the same everywhere")


@pytest.mark.slow
def test_a_run_keeps_them(model, tokenizer, tmp_path):
    table = tmp_path / "train.tsv"
    table.write_text("text\tlabel\n" + "a cat [E1]\tx\na dog\ty\ntwo words\tz\n" * 4)
    flags = [f"--init_checkpoint={model}", f"--train_file={table}", f"--output_dir={tmp_path}/run"]
    flags += ["--task_name=table", "--text_columns=text", "--do_eval=false", "--num_train_steps=2"]
    flags += ["--train_batch_size=4", "--max_seq_length=14"]
    fine_tune_here("classifier", *flags)
    assert_same(load_predictor(f"{tmp_path}/run").tokenizer, tokenizer)
