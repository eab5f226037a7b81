"""A Chinese model with a WordPiece vocabulary: text, records, pretraining, fine-tuning, predict, export, conversion."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.data_prep.pretraining.run import create_pretraining_data
from albert_tf.data_prep.pretraining.settings import PretrainingDataSettings
from albert_tf.export import export_model
from albert_tf.formats import pretrained
from albert_tf.serving.predictors import load_predictor
from albert_tf.text.tokenizer import Tokenizer
from tests.helpers import (
    TINY,
    eagerly,
    fine_tune_here,
    pretrain_here,
    write_files,
)
from tests.text.texts import CHINESE_LINES, write_vocabulary

SENTENCES = [
    "我喜欢南京的酒店，很好。",
    "价格1,000元，不喜欢！",
    "城市化时代呼唤文化自觉 the cat sat。",
    "iPhone6s手机 Café 的手机。",
    "最后的老城该往何处去？",
]


class Chain:
    """The files of a chain of programs, each made when the one before it is there."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.vocabulary = write_vocabulary(folder / "vocab.txt")
        self.tokenizer = Tokenizer.from_file(self.vocabulary)
        rng = np.random.default_rng(5)
        documents = ["\n".join(rng.choice(SENTENCES, 6)) for _ in range(30)]
        rows = [f"{rng.choice(SENTENCES)}\t{label}" for label in ["好", "坏"] * 12]
        config = TINY.replace(
            vocab_size=self.tokenizer.vocab_size, max_position_embeddings=48, num_hidden_layers=2
        )
        write_files(
            folder,
            {
                "text.txt": "\n\n".join(documents) + "\n",
                "train.tsv": "\n".join(["text_a\tlabel", *rows]) + "\n",
                "albert_config.json": config.to_json_string(),
            },
        )

    def records(self, **changes) -> dict:
        settings = PretrainingDataSettings(
            input_file=str(self.folder / "text.txt"),
            vocab_file=self.vocabulary,
            num_workers=1,
            **{
                "output_dir": str(self.folder / "records"),
                "max_seq_length": 40,
                "max_predictions_per_seq": 7,
                "dupe_factor": 2,
                "record_format": "full",
                **changes,
            },
        )
        return create_pretraining_data(settings)[0]

    def pretrain(self) -> None:
        with eagerly():
            pretrain_here(
                f"--input_file={self.folder / 'records'}",
                f"--output_dir={self.folder / 'pretrained'}",
                f"--albert_config_file={self.folder / 'albert_config.json'}",
                f"--vocab_file={self.vocabulary}",
                *("--train_batch_size=4", "--num_train_steps=3", "--num_warmup_steps=1"),
            )

    def fine_tune(self, runner: str, *flags: str) -> str:
        """Fine-tunes the pretrained model for two steps; returns the run's folder."""
        folder = str(self.folder / runner)
        with eagerly():
            fine_tune_here(
                runner,
                *("--do_train", "--do_eval", *flags),
                f"--init_checkpoint={self.folder / 'pretrained' / 'model'}",
                f"--output_dir={folder}",
                *("--max_seq_length=31", "--train_batch_size=6", "--num_train_steps=2"),
            )
        return folder


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Chain:
    """Text, vocabulary and records."""
    chain = Chain(tmp_path_factory.mktemp("chinese"))
    chain.metadata = chain.records()
    return chain


@pytest.fixture(scope="module")
def chain(prepared) -> Chain:
    """Also a pretrained and a fine-tuned model."""
    prepared.pretrain()
    prepared.fine_tune(
        "classifier",
        *("--task_name=tsv", "--text_columns=text_a"),
        f"--train_file={prepared.folder / 'train.tsv'}",
        f"--eval_file={prepared.folder / 'train.tsv'}",
    )
    return prepared


def test_records_hold_the_tokens_of_the_vocabulary(prepared):
    chain = prepared
    assert chain.metadata["vocab_size"] == chain.tokenizer.vocab_size
    assert chain.metadata["spm_sha256"] == chain.tokenizer.sha256
    (path,) = (chain.folder / "records").glob("*.tfrecord")
    starts = chain.tokenizer.word_starts()
    known = {id for sentence in SENTENCES for id in chain.tokenizer.encode(sentence)}
    known |= {chain.tokenizer.cls_id, chain.tokenizer.sep_id}
    for record in tf.data.TFRecordDataset(str(path)).take(20):
        values = tf.train.Example.FromString(record.numpy()).features.feature
        ids, boundary, mask, positions, labels = (
            np.array(values[name].int64_list.value)
            for name in (
                *("input_ids", "token_boundary", "input_mask"),
                *("masked_lm_positions", "masked_lm_ids"),
            )
        )
        ids[positions[labels > 0]] = labels[labels > 0]
        assert ids[0] == chain.tokenizer.cls_id and known.issuperset(ids[mask == 1].tolist())
        is_word = np.isin(ids, [chain.tokenizer.cls_id, chain.tokenizer.sep_id], invert=True)
        real = (mask == 1) & is_word
        np.testing.assert_array_equal(boundary[real], starts[ids[real]])


@pytest.mark.slow
def test_models_carry_the_vocabulary(chain):
    for run in ("pretrained", "classifier"):
        folder = chain.folder / run / "model"
        assert (folder / "vocab.txt").read_bytes() == chain.tokenizer.content
        assert not (folder / "spiece.model").exists()
        weights = pretrained.read_weights(str(folder))
        assert weights.vocabulary == str(folder / "vocab.txt") and weights.do_lower_case is True
        config = json.loads((folder / "config.json").read_text())
        ids = [config[f"{name}_token_id"] for name in ("pad", "bos", "eos")]
        assert ids == [0, chain.tokenizer.cls_id, chain.tokenizer.sep_id]
        special = json.loads((folder / "tokenizer_config.json").read_text())
        assert (special["pad_token"], special["unk_token"]) == ("[PAD]", "[UNK]")
    assert pretrained.read_weights(str(chain.folder / "pretrained")).vocabulary


@pytest.mark.slow
def test_predictions_and_the_export_agree(chain, tmp_path):
    texts = [*SENTENCES, *CHINESE_LINES]
    predictor = load_predictor(str(chain.folder / "classifier"))
    answers = predictor.predict(texts)
    path = export_model(str(chain.folder / "classifier"), str(tmp_path))
    loaded = tf.saved_model.load(path)
    found = loaded.signatures["classify"](texts=tf.constant(texts))
    for answer, probabilities in zip(answers, found["probabilities"].numpy(), strict=True):
        np.testing.assert_allclose([*answer["probabilities"].values()], probabilities, atol=1e-5)
    info = loaded.signatures["tokenization_info"]()
    assert pathlib.Path(info["vocab_file"].numpy().decode()).name == "vocab.txt"
    weights = pretrained.read_weights(path)
    assert pathlib.Path(weights.vocabulary).read_bytes() == chain.tokenizer.content


# Texts that a model was not trained on: unknown characters, accents, words of several tokens, a long one.
CONTEXTS = ["我喜欢南京的酒店，很好。", *CHINESE_LINES, "".join([*SENTENCES, *CHINESE_LINES])]


@pytest.mark.slow
def test_entities_are_cut_from_the_text(chain, tmp_path):
    # Equally frequent, so that two steps do not end with O everywhere.
    tags = ("B-LOC", "I-LOC", "O")
    lines = [
        "\n".join(f"{char}\t{tags[place % 3]}" for place, char in enumerate(text.replace(" ", "")))
        for text in SENTENCES
    ]
    path = tmp_path / "train.conll"
    path.write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    files = (f"--train_file={path}", f"--eval_file={path}", "--word_separator=none")
    folder = chain.fine_tune("tagger", *files, "--doc_stride=9")
    answers = load_predictor(folder).predict(CONTEXTS)
    for context, answer in zip(CONTEXTS, answers, strict=True):
        entities = answer["entities"]
        assert all(row["text"] == context[row["start"] : row["end"]] for row in entities)
    assert any(answer["entities"] for answer in answers)
