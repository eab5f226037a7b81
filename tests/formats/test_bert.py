"""BERTs: folders of Hugging Face are read, and written, as an ALBERT with E = D that shares nothing."""

import json

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from albert_tf import convert, load_predictor, save_pretrained
from albert_tf.core.errors import UserError
from albert_tf.export import export_model
from albert_tf.formats import pretrained
from albert_tf.model.config import AlbertConfig
from albert_tf.model.heads import AlbertForPreTraining
from albert_tf.text.tokenizer import Tokenizer
from tests.helpers import WORDS, fine_tune_here, write_bert_of_tf1

CONFIG = AlbertConfig(
    vocab_size=30,
    embedding_size=8,
    hidden_size=8,
    num_hidden_layers=3,
    num_hidden_groups=3,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=16,
    share_parameters="none",
)
INPUTS = {"input_ids": np.array([[2, 7, 9, 3]]), "segment_ids": np.array([[0, 0, 1, 1]])}


@pytest.fixture
def folder(tmp_path):
    pretrained.save_pretrained(AlbertForPreTraining(CONFIG, seed=1), tmp_path / "bert")
    return tmp_path / "bert"


def _states(model):
    return model.encoder(INPUTS)["sequence_output"].numpy()


def _rewrite(folder, rename, **values):
    """Renames the tensors of a folder; a name that becomes "" is left out."""
    path = folder / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    tensors = {rename(name): tensor for name, tensor in tensors.items() if rename(name)}
    safetensors.numpy.save_file(tensors, path)
    config = json.loads((folder / "config.json").read_text())
    config.pop("albert_tf", None)
    (folder / "config.json").write_text(json.dumps({**config, **values}))


def test_a_model_without_sharing_is_written_as_a_bert(folder):
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == "bert" and config["architectures"] == ["BertForPreTraining"]
    assert "embedding_size" not in config
    names = set(safetensors.numpy.load_file(folder / "model.safetensors"))
    assert "bert.encoder.layer.2.attention.output.LayerNorm.weight" in names
    assert {
        "cls.predictions.bias",
        "cls.seq_relationship.weight",
        "bert.pooler.dense.bias",
    } <= names
    assert not any("albert" in name for name in names)


@pytest.mark.parametrize(
    ("given", "rate"),
    [({"classifier_dropout": None}, 0.3), ({"classifier_dropout": 0.0}, 0.0), ({}, 0.3)],
)
def test_dropout_before_the_output_layer_is_that_of_transformers(folder, given, rate):
    path = folder / "config.json"
    config = json.loads(path.read_text()) | {"hidden_dropout_prob": 0.3}
    assert config.pop("classifier_dropout") == CONFIG.classifier_dropout_prob
    path.write_text(json.dumps(config | given))
    assert pretrained.load_pretrained(folder).config.classifier_dropout_prob == rate


def _old_names(name):
    name = name.removeprefix("bert.")
    if "LayerNorm" in name:
        name = name.replace(".weight", ".gamma").replace(".bias", ".beta")
    return "" if name.startswith(("pooler", "cls.")) else name


def test_old_names_without_prefix_and_pooler_are_read(folder):
    expected = _states(pretrained.load_pretrained(folder))
    _rewrite(folder, _old_names, architectures=["BertModel"])
    weights = pretrained.read_weights(folder)
    assert weights.left_out
    np.testing.assert_array_equal(_states(pretrained.build_model(weights)[0]), expected)


def test_checkpoints_of_the_original_bert_are_read(folder, tmp_path):
    model = pretrained.load_pretrained(folder)
    arrays = {name: variable.numpy() for name, variable in model.named_variables().items()}
    arrays["bert/pooler/dense/kernel/adam_m"] = np.zeros([8, 8], np.float32)
    original = tmp_path / "multi_cased_L-3_H-8"
    names = write_bert_of_tf1(original, CONFIG, arrays)
    weights = pretrained.read_weights(original)
    assert weights.do_lower_case is False and "encoder/layer_2/output/LayerNorm/beta" in str(names)
    np.testing.assert_array_equal(_states(pretrained.build_model(weights)[0]), _states(model))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"is_decoder": True}, "is_decoder"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"architectures": ["BertLMHeadModel"]}, "is 'BertLMHeadModel', expected BertForPre"),
        ({"tokenizer_class": "BertJapaneseTokenizer"}, "is 'BertJapaneseTokenizer'"),
    ],
)
def test_other_architectures_are_rejected(folder, values, reason):
    _rewrite(folder, str, **values)
    with pytest.raises(UserError, match=reason):
        pretrained.read_weights(folder)


def test_weights_in_a_file_of_tensorflow_are_rejected(folder):
    (folder / "model.safetensors").rename(folder / "tf_model.h5")
    with pytest.raises(UserError, match="from_tf=True"):
        pretrained.read_weights(folder)


_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "rain", "##s", "it"]
_TOKENIZER = {
    "normalizer": {"type": "BertNormalizer", "lowercase": False, "strip_accents": None},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "added_tokens": [{"id": id, "content": token} for id, token in enumerate(_TOKENS[:5])],
    "model": {"type": "WordPiece", "vocab": {token: id for id, token in enumerate(_TOKENS)}},
}


def test_the_vocabulary_may_be_in_tokenizer_json(folder):
    (folder / "tokenizer.json").write_text(json.dumps(_TOKENIZER))
    weights = pretrained.read_weights(folder)
    tokenizer = Tokenizer.from_file(weights.vocabulary, **weights.cleaning)
    assert tokenizer.encode("it rains It") == [7, 5, 6, 1]
    (folder / "vocab.txt").write_text("\n".join(_TOKENS))
    assert pretrained.read_weights(folder).do_lower_case is False


def test_the_vocabulary_of_a_model_with_whole_chinese_words_is_known_as_its_own(folder):
    normalizer = {**_TOKENIZER["normalizer"], "handle_chinese_chars": False}
    tokenizer_json = folder / "tokenizer.json"
    tokenizer_json.write_text(json.dumps({**_TOKENIZER, "normalizer": normalizer}))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    weights = pretrained.read_weights(folder)
    assert not weights.rules.separates_chinese
    tokenizer = Tokenizer.from_file(tokenizer_json, rules=weights.rules.of_words())
    assert weights.has_vocabulary_of(tokenizer)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("tokenizer.json", {"normalizer": None}),
        ("tokenizer.json", {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFD"}]}}),
        ("tokenizer.json", {"pre_tokenizer": {"type": "Whitespace"}}),
        ("tokenizer_config.json", {"word_tokenizer_type": "mecab"}),
    ],
)
def test_tokenizers_with_other_words_are_rejected(folder, name, values):
    (folder / name).write_text(json.dumps({**_TOKENIZER, **values}))
    with pytest.raises(UserError, match=f"/{name}: {next(iter(values))} (is|has) .* expected "):
        pretrained.read_weights(folder)


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("downstream")
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(WORDS.split())]
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    config = CONFIG.replace(
        vocab_size=len(tokens), max_position_embeddings=48, initializer_range=0.3
    )
    config = config.replace(foreign={"sentence_task": "nsp"})
    tokenizer = Tokenizer.from_file(str(folder / "vocab.txt"))
    save_pretrained(AlbertForPreTraining(config, seed=1), folder / "bert", spm_model_file=tokenizer)
    return folder / "bert"


TEXTS = ["anna saw a red house .", "bert met carl", "the old dog left"]


def test_a_bert_fills_masks_scores_embeds_and_says_what_is_next(bert):
    predictor = load_predictor(bert)
    filled, pair = predictor.predict(["anna saw a [MASK] .", "anna saw carl .\tbert left ."])
    assert len(filled["masks"][0]) == 5
    assert pair.keys() == {"is_next"}
    assert predictor.score(TEXTS)[1]["tokens"] == 3
    vectors = [load_predictor(bert, num_hidden_layers=n).embed(TEXTS) for n in (1, 2, 3)]
    np.testing.assert_array_equal(vectors[-1], predictor.embed(TEXTS))
    assert np.abs(vectors[0] - vectors[1]).max() > 0.01


def test_a_model_of_this_shape_that_learned_the_order_still_says_so(folder):
    assert pretrained.load_pretrained(folder).config.sentence_task == "sop"
    _rewrite(folder, str)
    values = json.loads((folder / "config.json").read_text())
    values.pop("sentence_task")
    (folder / "config.json").write_text(json.dumps(values))
    assert pretrained.load_pretrained(folder).config.sentence_task == "nsp"


@pytest.mark.slow
@pytest.mark.parametrize("format", ["onnx", "saved_model"])
def test_exports_of_a_bert_give_its_vectors(bert, tmp_path, format):
    path = export_model(str(bert), str(tmp_path), format=format, max_seq_length=16)
    predictor = load_predictor(bert)
    expected = predictor.embed(TEXTS)
    if format == "saved_model":
        signatures = tf.saved_model.load(path).signatures
        found = signatures["embed"](texts=tf.constant(TEXTS))["mean_embedding"].numpy()
        answer = signatures["sentence_order"](
            text_a=tf.constant(TEXTS[:1]), text_b=tf.constant(TEXTS[1:2])
        )
        (pair,) = predictor.predict(["\t".join(TEXTS[:2])])
        assert float(answer["is_next"][0]) == pytest.approx(pair["is_next"], abs=1e-5)
    else:
        found = load_predictor(path).embed(TEXTS)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_a_bert_is_converted_and_stays_one(bert, tmp_path):
    for source, output, format in (
        (bert, tmp_path / "tf1", "tf1"),
        (tmp_path / "tf1", tmp_path / "hf", "hf"),
    ):
        convert.main(
            convert.ConvertSettings(model=str(source), output_dir=str(output), format=format)
        )
    predictors = [load_predictor(path) for path in (bert, tmp_path / "hf")]
    first, second = (predictor.embed(TEXTS) for predictor in predictors)
    np.testing.assert_array_equal(first, second)
    assert predictors[1].predict(["\t".join(TEXTS[:2])])[0].keys() == {"is_next"}


def test_two_texts_are_rejected_by_a_model_of_one_segment(bert, task_flags, tmp_path):
    model = AlbertForPreTraining(pretrained.load_pretrained(bert).config.replace(type_vocab_size=1))
    save_pretrained(model, tmp_path / "one", spm_model_file=bert / "vocab.txt")
    runner, flags = task_flags["squad1.1"]
    flags = [*flags, f"--init_checkpoint={tmp_path / 'one'}", f"--output_dir={tmp_path}"]
    with pytest.raises(UserError, match=(message := "two texts .* type_vocab_size is 1")):
        load_predictor(tmp_path / "one").predict(["\t".join(TEXTS[:2])])
    with pytest.raises(UserError, match=message):
        fine_tune_here(runner, *flags)


def test_a_bert_is_fine_tuned(bert, task_flags, tmp_path):
    runner, flags = task_flags["squad1.1"]
    changes = [f"--init_checkpoint={bert}", "--num_train_steps=2", f"--output_dir={tmp_path}"]
    fine_tune_here(runner, *flags, *changes)
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert (
        config["architectures"] == ["BertForQuestionAnswering"] and config["model_type"] == "bert"
    )
