"""Accents that are kept: the setting goes from text to records, runs, folders and exports, and is never guessed."""

import json
import pathlib

import numpy as np
import pytest

from albert_tf import AlbertForPreTraining, convert, save_pretrained
from albert_tf.core.errors import UserError
from albert_tf.data_prep.pretraining.make_records import create_pretraining_data
from albert_tf.data_prep.pretraining.settings import PretrainingDataSettings
from albert_tf.data_prep.train_sentencepiece import TrainSettings
from albert_tf.data_prep.train_sentencepiece import main as train_sentencepiece
from albert_tf.export import export_model
from albert_tf.formats import pretrained
from albert_tf.serving.predictors import load_predictor
from albert_tf.text.tokenizer import Tokenizer
from tests.helpers import TINY, eagerly, fine_tune_here, pretrain_here, write_files
from tests.text.texts import write_vocabulary

SENTENCES = ["Été à la plage, déjà.", "Le café est là.", "Où est la forêt ?", "Ça va très bien."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """Text, and a SentencePiece model of it."""
    folder = tmp_path_factory.mktemp("accents")
    rng = np.random.default_rng(3)
    documents = ["\n".join(rng.choice(SENTENCES, 5)) for _ in range(40)]
    rows = [f"{rng.choice(SENTENCES)}\t{label}" for label in "ab" * 9]
    files = {
        "text.txt": "\n\n".join(documents) + "\n",
        "train.tsv": "text_a\tlabel\n" + "\n".join(rows) + "\n",
    }
    write_files(folder, files)
    paths = {"input_file": f"{folder}/text.txt", "output_prefix": f"{folder}/spiece"}
    options = {"vocab_size": 40, "character_coverage": 1.0, "keep_accents": True}
    train_sentencepiece(TrainSettings(**paths, **options))
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder) -> Tokenizer:
    return Tokenizer.from_file(str(folder / "spiece.model"), keep_accents=True)


@pytest.fixture(scope="module")
def model(folder, tokenizer) -> pathlib.Path:
    """A pretrained model on records with accents."""
    metadata, _ = create_pretraining_data(records_settings(folder, keep_accents=True))
    assert metadata["keep_accents"] is True
    config = TINY.replace(vocab_size=tokenizer.vocab_size, max_position_embeddings=40)
    (folder / "config.json").write_text(config.to_json_string())
    flags = [
        f"--input_file={folder / 'records'}",
        f"--output_dir={folder / 'run'}",
        f"--albert_config_file={folder / 'config.json'}",
        f"--spm_model_file={folder / 'spiece.model'}",
        "--train_batch_size=4",
        "--num_train_steps=1",
        "--num_warmup_steps=0",
    ]
    with eagerly():
        pretrain_here(*flags)
    return folder / "run" / "model"


def records_settings(folder, **changes) -> PretrainingDataSettings:
    paths = {"input_file": f"{folder}/text.txt", "output_dir": f"{folder}/records"}
    paths["spm_model_file"] = f"{folder}/spiece.model"
    sizes = {"max_seq_length": 36, "max_predictions_per_seq": 5, "dupe_factor": 1, "num_workers": 1}
    return PretrainingDataSettings(**paths, **sizes, **changes)


def test_records_without_accents_are_not_reused(folder, model):
    with pytest.raises(UserError, match="keep_accents was True, is False"):
        create_pretraining_data(records_settings(folder))


@pytest.mark.slow
def test_the_model_says_so_in_every_layout(model, tokenizer, tmp_path):
    settings = json.loads((model / "tokenizer_config.json").read_text())
    assert settings["keep_accents"] is True
    paths = [model, model.parent]
    for format in ("tf1", "hf"):
        convert.main(
            convert.ConvertSettings(
                model=str(paths[-1] if format == "hf" else model),
                output_dir=str(tmp_path / format),
                format=format,
            )
        )
        paths.append(tmp_path / format)
    paths.append(export_model(str(model), str(tmp_path / "export")))
    for path in paths:
        assert pretrained.read_weights(str(path)).keep_accents is True, path
        predictor = load_predictor(str(path))
        assert predictor.tokenizer.encode("Déjà") == tokenizer.encode("Déjà"), path


def test_fine_tuning_must_agree_with_the_model(model, folder, tmp_path):
    flags = ["--task_name=tsv", "--text_columns=text_a", "--max_seq_length=30"]
    flags += [f"--train_file={folder / 'train.tsv'}", "--num_train_steps=1"]
    flags += [f"--init_checkpoint={model}", f"--output_dir={tmp_path / 'run'}"]
    with pytest.raises(UserError, match="--keep_accents is false, but the model in .* with true"):
        fine_tune_here("classifier", *flags)
    with eagerly():
        fine_tune_here("classifier", *flags, "--keep_accents")
    for path in (tmp_path / "run", tmp_path / "run" / "model"):
        assert pretrained.read_weights(str(path)).keep_accents is True


def test_foreign_wordpiece_folders_say_it_as_transformers_does(tmp_path):
    vocabulary = write_vocabulary(tmp_path / "vocab.txt")
    size = Tokenizer.from_file(vocabulary).vocab_size
    model = AlbertForPreTraining(TINY.replace(vocab_size=size))
    tokenizer = Tokenizer.from_file(vocabulary, keep_accents=True)
    save_pretrained(model, tmp_path / "model", spm_model_file=tokenizer)
    path = tmp_path / "model" / "tokenizer_config.json"
    assert pretrained.read_weights(str(tmp_path / "model")).keep_accents is True
    values = json.loads(path.read_text())
    assert values["strip_accents"] is False

    # A class without steps of its own follows tokenizer.json, as in transformers 5; without one, the settings decide.
    path.write_text(json.dumps(values | {"strip_accents": True}))
    assert pretrained.read_weights(str(tmp_path / "model")).keep_accents is True
    (tmp_path / "model" / "tokenizer.json").unlink()
    for changes, keeps_accents, strips_accents, separates_chinese in (
        ({"strip_accents": None}, None, False, True),
        ({"strip_accents": True}, False, False, True),
        ({"strip_accents": True, "do_lower_case": False}, False, True, True),
        ({"tokenize_chinese_chars": False}, True, False, False),
    ):
        path.write_text(json.dumps(values | changes))
        weights = pretrained.read_weights(str(tmp_path / "model"))
        assert weights.keep_accents is keeps_accents
        assert weights.rules.strips_accents is strips_accents
        assert weights.rules.separates_chinese is separates_chinese
    path.write_text(json.dumps(values | {"strip_accents": "no"}))
    with pytest.raises(UserError, match="strip_accents is 'no', expected true or false"):
        pretrained.read_weights(str(tmp_path / "model"))
