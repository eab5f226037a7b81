"""A Chinese model with a WordPiece vocabulary: text, records, pretraining, fine-tuning, predict, export, conversion."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data_prep.pretraining.make_records import create_pretraining_data
from albert_tf.data_prep.pretraining.settings import PretrainingDataSettings
from albert_tf.export import export_model
from albert_tf.formats import pretrained
from albert_tf.serving.predictors import load_predictor
from albert_tf.text.tokenizer import Tokenizer
from tests.helpers import TINY, eagerly, fine_tune_here, pretrain_here, write_files
from tests.text.texts import CHINESE_LINES, write_vocabulary

SENTENCES = [
    "我喜欢南京的酒店，很好。",
    "价格1,000元，不喜欢！",
    "城市化时代呼唤文化自觉 the cat sat。",
    "iPhone6s手机 Café 的手机。",
    "最后的老城该往何处去？",
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    return Tokenizer.from_file(write_vocabulary(tmp_path_factory.mktemp("words") / "vocab.txt"))


@pytest.fixture(scope="module")
def prepared(tokenizer, tmp_path_factory) -> pathlib.Path:
    """A folder with text, vocabulary, a table and records."""
    folder = tmp_path_factory.mktemp("chinese")
    rng = np.random.default_rng(5)
    documents = ["\n".join(rng.choice(SENTENCES, 6)) for _ in range(30)]
    rows = [f"{rng.choice(SENTENCES)}\t{label}" for label in ["好", "坏"] * 12]
    sizes = {"max_position_embeddings": 48, "num_hidden_layers": 2}
    config = TINY.replace(vocab_size=tokenizer.vocab_size, **sizes)
    contents = {
        "vocab.txt": tokenizer.content,
        "text.txt": "\n\n".join(documents) + "\n",
        "train.tsv": "\n".join(["text_a\tlabel", *rows]) + "\n",
        "albert_config.json": config.to_json_string(),
    }
    write_files(folder, contents)
    paths = {"input_file": f"{folder}/text.txt", "output_dir": f"{folder}/records"}
    options = {"max_seq_length": 40, "max_predictions_per_seq": 7, "dupe_factor": 2}
    options |= {"vocab_file": f"{folder}/vocab.txt", "record_format": "full", "num_workers": 1}
    create_pretraining_data(PretrainingDataSettings(**paths, **options))
    return folder


@pytest.fixture(scope="module")
def trained(prepared) -> pathlib.Path:
    """The same folder with a pretrained and a fine-tuned model."""
    with eagerly():
        pretrain_here(
            f"--input_file={prepared / 'records'}",
            f"--output_dir={prepared / 'pretrained'}",
            f"--albert_config_file={prepared / 'albert_config.json'}",
            f"--vocab_file={prepared / 'vocab.txt'}",
            "--train_batch_size=4",
            "--num_train_steps=3",
            "--num_warmup_steps=1",
        )
        fine_tune_here(
            "classifier",
            "--task_name=table",
            "--text_columns=text_a",
            *(f"--{name}_file={prepared / 'train.tsv'}" for name in ("train", "eval")),
            f"--init_checkpoint={prepared / 'pretrained' / 'model'}",
            f"--output_dir={prepared / 'classifier'}",
            "--max_seq_length=31",
            "--train_batch_size=6",
            "--num_train_steps=2",
        )
    return prepared


def test_records_hold_the_tokens_of_the_vocabulary(prepared, tokenizer):
    metadata = json.loads((prepared / "records" / "metadata.json").read_text())
    assert metadata["vocab_size"] == tokenizer.vocab_size
    (path,) = (prepared / "records").glob("*.tfrecord")
    starts = tokenizer.word_starts()
    special = [tokenizer.cls_id, tokenizer.sep_id]
    known = {id for sentence in SENTENCES for id in tokenizer.encode(sentence)} | {*special}
    names = ("input_ids", "token_boundary", "input_mask", "masked_lm_positions", "masked_lm_ids")
    for record in tf.data.TFRecordDataset(str(path)).take(20):
        values = tf.train.Example.FromString(record.numpy()).features.feature
        ids, boundary, mask, positions, labels = (
            np.array(values[name].int64_list.value) for name in names
        )
        ids[positions[labels > 0]] = labels[labels > 0]
        assert ids[0] == tokenizer.cls_id and known.issuperset(ids[mask == 1].tolist())
        real = (mask == 1) & np.isin(ids, special, invert=True)
        np.testing.assert_array_equal(boundary[real], starts[ids[real]])


@pytest.mark.slow
def test_models_carry_the_vocabulary(trained, tokenizer):
    for run in ("pretrained", "classifier"):
        folder = trained / run / "model"
        assert (folder / "vocab.txt").read_bytes() == tokenizer.content
        assert not (folder / "spiece.model").exists()
        weights = pretrained.read_weights(str(folder))
        assert weights.vocabulary == str(folder / "vocab.txt") and weights.do_lower_case is True
        config = json.loads((folder / "config.json").read_text())
        ids = [config[f"{name}_token_id"] for name in ("pad", "bos", "eos")]
        assert ids == [0, tokenizer.cls_id, tokenizer.sep_id]
    assert pretrained.read_weights(str(trained / "pretrained")).vocabulary


@pytest.mark.slow
def test_predictions_and_the_export_agree(trained, tokenizer, tmp_path):
    texts = [*SENTENCES, *CHINESE_LINES]
    answers = load_predictor(str(trained / "classifier")).predict(texts)
    path = export_model(str(trained / "classifier"), str(tmp_path))
    loaded = tf.saved_model.load(path)
    found = loaded.signatures["classify"](texts=tf.constant(texts))
    for answer, probabilities in zip(answers, found["probabilities"].numpy(), strict=True):
        np.testing.assert_allclose([*answer["probabilities"].values()], probabilities, atol=1e-5)
    info = loaded.signatures["tokenization_info"]()
    assert pathlib.Path(info["vocab_file"].numpy().decode()).name == "vocab.txt"
    weights = pretrained.read_weights(path)
    assert pathlib.Path(weights.vocabulary).read_bytes() == tokenizer.content
