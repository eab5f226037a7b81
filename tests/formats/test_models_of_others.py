"""Folders of others are read with their own values; the right ones are recorded (`recorded_outputs/others.py`)."""

import json
import pathlib
import re

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from albert_tf import Tokenizer, UserError, convert, load_predictor
from albert_tf.export import export_model
from albert_tf.fold_to_folder import FoldSettings
from albert_tf.fold_to_folder import main as fold
from albert_tf.formats import pretrained
from albert_tf.serving.corpus_search import Search
from albert_tf.serving.in_graph.text import GraphText
from albert_tf.text.rules import TokenizerRules
from tests.helpers import eagerly, error_of
from tests.recorded_outputs import others

RECORDED = json.loads(others.RECORDED.read_text())
TOLERANCE = {"rtol": 2e-6, "atol": 2e-6}


@pytest.fixture(autouse=True)
def without_compilation():
    """The models are tiny: compiling them takes longer than computing them."""
    with eagerly():
        yield


def change(path: pathlib.Path, **values: object) -> None:
    """Changes values in a JSON file."""
    before = json.loads(path.read_text()) if path.exists() else {}
    others.write_json(path, {**before, **values})


def onnx_of(folder: pathlib.Path) -> pathlib.Path:
    """The folder of an ONNX export."""
    output = folder.with_name(f"{folder.name}_onnx")
    export_model(str(folder), str(output), format="onnx")
    return output


# --- Vectors ---


@pytest.mark.parametrize("name", others.MODULES)
def test_vectors_of_every_module_are_those_of_sentence_transformers(name, tmp_path):
    pooling, modules = others.MODULES[name]
    others.write_embedder(tmp_path / name, pooling, modules)
    expected = RECORDED["vectors"][name]
    np.testing.assert_allclose(
        load_predictor(tmp_path / name).embed(others.TEXTS), expected, **TOLERANCE
    )
    exported = load_predictor(onnx_of(tmp_path / name))
    np.testing.assert_allclose(exported.embed(others.TEXTS), expected, rtol=1e-5, atol=1e-5)
    assert exported.embed([]).shape == (0, len(expected[0]))


def test_a_pooling_that_names_no_kind_is_the_mean(tmp_path):
    """As in sentence-transformers 6.2, `Pooling.load`."""
    others.write_embedder(tmp_path / "mean", *others.MODULES["mean"])
    path = tmp_path / "mean" / "1_Pooling" / "config.json"
    path.write_text(json.dumps({"word_embedding_dimension": 32}))
    vectors = load_predictor(tmp_path / "mean").embed(others.TEXTS)
    np.testing.assert_allclose(vectors, RECORDED["vectors"]["mean"], **TOLERANCE)
    path.write_text(json.dumps({"pooling_mode_mean_tokens": False}))
    assert "expected poolings of" in error_of(load_predictor, tmp_path / "mean")


@pytest.mark.parametrize("name", ["other_order", "layer_norm"])
def test_converted_modules_give_the_same_vectors(name, tmp_path):
    pooling, modules = others.MODULES[name]
    others.write_embedder(tmp_path / name, pooling, modules, {"similarity_fn_name": "dot"})
    for format in ("hf", "tf1"):
        output = str(tmp_path / format)
        if format == "tf1":  # the original has no exact GELU
            change(tmp_path / name / "config.json", hidden_act="relu")
        settings = convert.ConvertSettings(
            model=str(tmp_path / name), output_dir=output, format=format
        )
        convert.main(settings)
        converted = load_predictor(output)
        source = load_predictor(tmp_path / name)
        np.testing.assert_array_equal(converted.embed(others.TEXTS), source.embed(others.TEXTS))
        assert converted.similarity_name == "dot"


def test_texts_are_cut_at_the_left_if_the_tokenizer_says_so(tmp_path):
    others.write_embedder(tmp_path / "left", tokenizer_config={"truncation_side": "left"})
    predictor = load_predictor(tmp_path / "left")
    expected = RECORDED["vectors"]["left"]
    np.testing.assert_allclose(predictor.embed(others.TEXTS), expected, **TOLERANCE)
    assert np.abs(np.subtract(expected[3], RECORDED["vectors"]["mean"][3])).max() > 0.1
    exported = load_predictor(onnx_of(tmp_path / "left"))
    np.testing.assert_allclose(exported.embed(others.TEXTS), expected, rtol=1e-5, atol=1e-5)
    tokenizer = Tokenizer.from_pretrained(tmp_path / "left")
    ids = tokenizer(["tea at night", "boat"], ["we", "the quiet stone harbour"], max_length=6)
    tokens = [[tokenizer.id_to_token(id) for id in row] for row in ids["input_ids"]]
    assert tokens[0] == ["[CLS]", "at", "night", "[SEP]", "we", "[SEP]"]
    assert tokens[1] == ["[CLS]", "boat", "[SEP]", "stone", "harbour", "[SEP]"]
    change(tmp_path / "left" / "tokenizer_config.json", truncation_side="middle")
    assert "tokenizer_config.json: truncation_side is 'middle'" in error_of(
        load_predictor, tmp_path / "left"
    )


@pytest.mark.parametrize("name", others.SIMILARITIES)
def test_similarity_rank_and_search_are_what_the_model_was_made_for(name, tmp_path):
    others.write_embedder(tmp_path / name, about={"similarity_fn_name": name})
    expected = np.array(RECORDED["similarity"][name])
    corpus = tmp_path / "corpus.txt"
    # The exports of the others would have nothing new.
    exports = [onnx_of(tmp_path / name)] if name == "manhattan" else []
    for path in (tmp_path / name, *exports):
        predictor = load_predictor(path)
        queries = others.TEXTS[:2]
        np.testing.assert_allclose(
            predictor.similarity(queries, others.DOCUMENTS), expected, rtol=1e-5, atol=1e-5
        )
        order = np.argsort(-expected[1]).tolist()
        ranked = predictor.rank(queries[1], others.DOCUMENTS)
        assert [answer["index"] for answer in ranked] == order
        search = Search(predictor, str(corpus), others.DOCUMENTS, range(4))
        (answer,) = search.predict([queries[1]])
        assert [result["index"] for result in answer["results"]] == order
        scores = [result["score"] for result in answer["results"]]
        np.testing.assert_allclose(scores, expected[1][order], rtol=1e-5, atol=1e-5)


# --- Scores ---


@pytest.mark.parametrize("name", others.CROSS_ENCODERS)
def test_scores_are_those_of_cross_encoder_and_of_pipeline(name, tmp_path):
    others.write_bert(tmp_path / name, "cross", **others.CROSS_ENCODERS[name])
    exports = [onnx_of(tmp_path / name)] if name == "left" else []
    for path in (tmp_path / name, *exports):
        predictor = load_predictor(path)
        ranked = [predictor.rank(query, [text])[0]["score"] for query, text in others.PAIRS]
        np.testing.assert_allclose(ranked, RECORDED["scores"][name], rtol=1e-5, atol=1e-5)
        items = [{"text_a": query, "text_b": text} for query, text in others.PAIRS]
        answers = [answer["score"] for answer in predictor.predict(items)]
        # A pipeline does not know the entries of sentence-transformers, which are followed here.
        entries = others.CROSS_ENCODERS[name].get("config", {}).keys() - {"problem_type"}
        recorded = RECORDED["scores" if entries else "answers"][name]
        np.testing.assert_allclose(answers, recorded, rtol=1e-5, atol=1e-5)


def test_a_converted_cross_encoder_keeps_its_scores_and_length(tmp_path):
    others.write_bert(tmp_path / "left", "cross", **others.CROSS_ENCODERS["left"])
    settings = convert.ConvertSettings(model=str(tmp_path / "left"), output_dir=str(tmp_path / "c"))
    convert.main(settings)
    predictor = load_predictor(tmp_path / "c")
    assert predictor.task_settings["max_seq_length"] == 12
    ranked = [predictor.rank(query, [text])[0]["score"] for query, text in others.PAIRS]
    np.testing.assert_allclose(ranked, RECORDED["scores"]["left"], rtol=1e-5, atol=1e-5)
    assert "problem_type" not in json.loads((tmp_path / "c" / "config.json").read_text())


@pytest.mark.parametrize("activation", ["torch.nn.modules.activation.Tanh", "mine.Own", 3])
def test_other_activations_of_a_cross_encoder_are_rejected(activation, tmp_path):
    config = {"sentence_transformers": {"activation_fn": activation}}
    others.write_bert(tmp_path / "own", "cross", config=config)
    line = error_of(pretrained.read_weights, tmp_path / "own")
    assert f"config.json: sentence_transformers.activation_fn is {activation!r}" in line


def test_a_classifier_is_cut_at_the_length_of_its_tokenizer(tmp_path):
    others.write_bert(tmp_path / "two", "two", tokenizer_config={"model_max_length": 9})
    with pytest.warns(UserWarning, match="cut at --max_seq_length=9"):
        (answer,) = load_predictor(tmp_path / "two").predict([others.TEXTS[3]])
    assert answer["probabilities"] == pytest.approx(RECORDED["two"], abs=1e-6)
    tokenizer = Tokenizer.from_pretrained(tmp_path / "two")
    assert tokenizer([others.TEXTS[3]])["input_ids"].shape == (1, 9)


# --- Texts ---


@pytest.mark.parametrize("name", others.CLEANINGS)
def test_every_combination_of_cleaning_gives_the_tokens_of_transformers(name, tmp_path):
    others.write_bert(tmp_path / name, tokenizer_config=others.CLEANINGS[name])
    tokenizer = Tokenizer.from_pretrained(tmp_path / name)
    expected = RECORDED["tokens"][name]
    ids, spans = tokenizer.encode_with_offsets(others.CLEANED)
    assert [tokenizer.id_to_token(id) for id in tokenizer.encode(others.CLEANED)] == expected
    assert [tokenizer.id_to_token(id) for id in ids] == expected
    assert [others.CLEANED[start:end] for start, end in spans][0] == "The"
    # What is written for others, and read again, gives them, too.
    model, _ = pretrained.build_model(pretrained.read_weights(tmp_path / name))
    pretrained.save_pretrained(model, tmp_path / "written", spm_model_file=tokenizer)
    again = Tokenizer.from_pretrained(tmp_path / "written")
    assert again.encode(others.CLEANED) == ids


@pytest.mark.parametrize(
    ("settings", "is_lower"),
    [
        ({}, True),  # BERT's class, which decides
        ({"do_lower_case": False}, False),
        ({"tokenizer_class": "PreTrainedTokenizerFast"}, False),  # without steps of its own
        ({"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": True}, False),
    ],
)
def test_of_two_files_that_differ_the_one_of_transformers_counts(settings, is_lower, tmp_path):
    others.write_bert(tmp_path / "bert", tokenizer_config=settings)
    values = {
        "normalizer": {"type": "BertNormalizer", "lowercase": False, "strip_accents": None},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {"type": "WordPiece", "vocab": {t: n for n, t in enumerate(others.TOKENS)}},
    }
    others.write_json(tmp_path / "bert" / "tokenizer.json", values)
    assert pretrained.read_weights(tmp_path / "bert").do_lower_case is is_lower


def test_a_special_token_in_a_text_is_one_for_predictors_of_others_alone(tmp_path):
    others.write_embedder(tmp_path / "others")
    texts = ["tea[SEP]boat", "tea [SEP] boat"]
    tokens = ["tea", "[SEP]", "boat"]

    def found(tokenizer):
        return [[tokenizer.id_to_token(id) for id in tokenizer.encode(text)] for text in texts]

    predictor = load_predictor(tmp_path / "others")
    assert found(predictor.tokenizer) == [tokens, tokens]
    plain = found(Tokenizer.from_pretrained(tmp_path / "others"))
    assert plain[0] == ["tea", "[", "[UNK]", "]", "boat"]
    # A conversion does not change who made a model.
    output = str(tmp_path / "converted")
    convert.main(convert.ConvertSettings(model=str(tmp_path / "others"), output_dir=output))
    assert found(load_predictor(output).tokenizer) == [tokens, tokens]
    assert found(load_predictor(onnx_of(tmp_path / "others")).tokenizer) == [tokens, tokens]
    # The same folder, made here.
    model, _ = pretrained.build_model(pretrained.read_weights(tmp_path / "others"))
    vocabulary = tmp_path / "others" / "vocab.txt"
    pretrained.save_pretrained(model, tmp_path / "ours", spm_model_file=vocabulary)
    assert found(load_predictor(tmp_path / "ours").tokenizer) == plain


@pytest.mark.parametrize(
    "rules",
    [
        {"finds_special_tokens": True, "truncation_side": "left"},
        {"finds_special_tokens": True, "separates_chinese": False, "numbers_segments": False},
        {"strips_accents": True},
    ],
)
def test_a_graph_reads_texts_as_the_tokenizer_of_others(rules, tmp_path):
    pytest.importorskip("tensorflow_text")
    others.write_bert(tmp_path / "bert")
    rules = TokenizerRules(**rules)
    options = {"do_lower_case": not rules.strips_accents, "rules": rules}
    tokenizer = Tokenizer.from_file(tmp_path / "bert" / "vocab.txt", **options)
    texts = [*others.TEXTS, others.CLEANED, "[SEP]", "[MASK]tea [PAD] [sep][UNK] É"]
    first = texts
    second = texts[::-1]
    for length in (7, 8):
        expected = tokenizer(first, second, max_length=length)
        found = GraphText(tokenizer, length).pairs(tf.constant(first), tf.constant(second))
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values)
    assert (expected["segment_ids"].max() == 1) == rules.numbers_segments


def test_folding_keeps_the_case_of_a_model_without_vocabulary(tmp_path):
    others.write_bert(tmp_path / "bert", tokenizer_config={"do_lower_case": False})
    (tmp_path / "bert" / "vocab.txt").unlink()
    fold(FoldSettings(model=str(tmp_path / "bert"), output_dir=str(tmp_path / "folded")))
    assert pretrained.read_weights(tmp_path / "folded").do_lower_case is False


# --- Files ---


@pytest.mark.parametrize("kind", ["parts", "parallel"])
def test_weights_in_several_files_or_of_data_parallel_are_those_of_one(kind, tmp_path):
    folder = tmp_path / kind
    others.write_embedder(folder)
    path = folder / "model.safetensors"
    expected = pretrained.read_weights(folder).arrays
    tensors = safetensors.numpy.load_file(path)
    if kind == "parallel":
        tensors = {f"module.{name}": tensor for name, tensor in tensors.items()}
        safetensors.numpy.save_file(tensors, path)
    else:
        path.unlink()
        places = {
            name: f"model-{number % 3 + 1}-of-3.safetensors" for number, name in enumerate(tensors)
        }
        for file in set(places.values()):
            tensors_of_file = {
                name: tensors[name] for name, place in places.items() if place == file
            }
            safetensors.numpy.save_file(tensors_of_file, folder / file)
        others.write_json(folder / "model.safetensors.index.json", {"weight_map": places})
    found = pretrained.read_weights(folder).arrays
    assert found.keys() == expected.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name])
    if kind == "parts":
        (folder / "model-2-of-3.safetensors").unlink()
        assert "model-2-of-3.safetensors: is missing" in error_of(pretrained.read_weights, folder)
        change(folder / "model.safetensors.index.json", weight_map={"a": "../other.safetensors"})
        assert "in weight_map" in error_of(pretrained.read_weights, folder)


@pytest.mark.parametrize("head", ["model_head.pkl", "config_setfit.json"])
def test_the_head_of_a_setfit_folder_is_named_and_not_run(head, tmp_path, caplog):
    others.write_embedder(tmp_path / "setfit")
    others.write_json(tmp_path / "setfit" / "config_setfit.json", {"labels": ["bad", "good"]})
    if head.endswith(".pkl"):
        (tmp_path / "setfit" / head).touch()
    with caplog.at_level("WARNING", "absl"):
        assert pretrained.read_weights(tmp_path / "setfit").model_class == "AlbertForEmbedding"
    assert "model_head.pkl of the labels ['bad', 'good'] is not read" in caplog.text
    assert "albert-tf classify --train_head_only --init_checkpoint=" in caplog.text


WRONG = [
    ("1_Pooling/config.json", "word_embedding_dimension", -5, "expected the hidden_size"),
    ("1_Pooling/config.json", "pooling_mode", "median", "expected poolings of"),
    ("sentence_bert_config.json", "max_seq_length", "x", "expected null or an integer"),
    ("sentence_bert_config.json", "max_seq_length", 10**12, "expected null or an integer"),
    ("tokenizer_config.json", "model_max_length", "x", "expected an integer of at least 4"),
    ("tokenizer_config.json", "model_max_length", 1, "expected an integer of at least 4"),
    ("tokenizer_config.json", "sep_token", "</s>", "expected [SEP]"),
    (
        "config_sentence_transformers.json",
        "similarity_fn_name",
        "jaccard",
        "expected one of cosine",
    ),
    ("2_Dense/config.json", "activation_function", "mine.Own", "expected a class of torch.nn"),
    ("2_Dense/config.json", "in_features", 31, "linear.weight has 32"),
    ("2_Dense/config.json", "module_input_name", "token_embeddings", "'sentence_embedding'"),
    ("2_Dense/config.json", "use_residual", True, "expected false"),
]


@pytest.mark.parametrize(("name", "key", "value", "expected"), WRONG)
def test_a_wrong_value_gets_one_line_that_names_it(name, key, value, expected, tmp_path):
    others.write_embedder(tmp_path / "e", None, [others.dense("Tanh", 32, 5)])
    change(tmp_path / "e" / name, **{key: value})
    with pytest.raises(UserError) as caught:
        pretrained.read_weights(tmp_path / "e")
    line = str(caught.value)
    assert f"{tmp_path / 'e' / name}: " in line and expected in line, line


# --- The table of the documentation ---

# Another value of each key that is followed, or without effect: what it changes is in the other test.
FOLLOWED_EARLY = {  # sizes without which the tensors do not fit, and labels of a classifier
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "intermediate_size",
    "type_vocab_size",
    "max_position_embeddings",
    "architectures",
    "id2label",
    "sentence_transformers",
    "sbert_ce_default_activation_function",
    "embedding_size",
    "num_hidden_groups",
    "inner_group_num",
    "classifier_dropout_prob",
    "keep_accents",  # of SentencePiece
    "tokenizer_class",  # with a tokenizer.json
}
OTHER_VALUES = {
    "config.json": {
        "num_attention_heads": 8,
        "hidden_act": "relu",
        "layer_norm_eps": 1e-5,
        "hidden_dropout_prob": 0.3,
        "attention_probs_dropout_prob": 0.3,
        "classifier_dropout": 0.3,
        "initializer_range": 0.5,
        "problem_type": "regression",
        "finetuning_task": "own",
        "model_type": "roberta",
        "is_decoder": True,
        "add_cross_attention": True,
        "position_embedding_type": "alibi",
    },
    "tokenizer_config.json": {
        "do_lower_case": False,
        "strip_accents": False,
        "tokenize_chinese_chars": False,
        "keep_accents": True,
        "model_max_length": 9,
        "max_len": 9,
        "truncation_side": "left",
        "model_input_names": ["input_ids"],
        "tokenizer_class": "PreTrainedTokenizerFast",
        "added_tokens_decoder": {str(len(others.TOKENS) - 1): {"content": "É", "special": True}},
        "additional_special_tokens": ["É"],
        "extra_special_tokens": ["É"],
    },
    "special_tokens_map.json": {"additional_special_tokens": ["É"]},
    "modules.json": {},
    "sentence_bert_config.json": {
        "max_seq_length": 9,
        "do_lower_case": True,
        "query_length": 3,
        "document_length": 3,
        "query_expansion": True,
    },
    "config_sentence_transformers.json": {
        "similarity_fn_name": "dot",
        "activation_fn": None,
        "prompts": {"query": "q: "},
        "default_prompt_name": "query",
        "truncate_dim": 3,
    },
    "1_Pooling/config.json": {"pooling_mode": "max", "pooling_mode_mean_tokens": False},
    "2_Dense/config.json": {"activation_function": "torch.nn.GELU", "use_residual": True},
    "config_setfit.json": {},
}


def table_of_documentation() -> dict[str, list[set[str]]]:
    """File -> the keys that are followed, checked, and without effect, by docs/reference/settings_of_others.md."""
    page = others.RECORDED.parents[2] / "docs" / "reference" / "settings_of_others.md"
    table = {}
    for section in page.read_text().split("\n### `")[1:]:
        name, _, text = section.partition("`")
        keys: dict[str, set[str]] = {"Followed": set(), "Checked": set(), "No effect": set()}
        for bullet in text.split("\n- **")[1:]:
            title, _, names = bullet.partition(":**")  # "Followed, sizes"
            keys[title.partition(",")[0]] |= set(re.findall(r"`(\w+)`", names))
        table[name] = list(keys.values())
    return table


TABLE = table_of_documentation()


def facts(folder: pathlib.Path) -> tuple:
    """Everything that ids and vectors depend on."""
    weights = pretrained.read_weights(folder)
    ignored = {name for keys in TABLE.values() for name in keys[2]}
    values = weights.config.to_dict()
    config = {name: value for name, value in values.items() if name not in ignored}
    vocabulary = Tokenizer.from_file(weights.vocabulary).sha256
    fields = ("task_settings", "do_lower_case", "keep_accents", "rules", "max_length", "left_out")
    return config, vocabulary, *(getattr(weights, name) for name in fields)


@pytest.mark.parametrize("file", OTHER_VALUES)
def test_every_key_of_the_table_does_what_it_says(file, tmp_path):
    assert set(TABLE) == set(OTHER_VALUES)
    followed, checked, unused = TABLE[file]
    folder = tmp_path / "own"
    others.write_embedder(folder, None, [others.dense("Tanh", 32, 5)])
    for name, value in _BESIDE.get(file, {}).items():
        change(folder / name, **value)
    usual = facts(folder)
    path = folder / file
    content = path.read_text() if path.exists() else None
    for key in sorted(followed | checked | unused):
        if file == "modules.json":  # an array
            values = [{**entry, key: "a.b"} for entry in json.loads(content)]
            others.write_json(path, values)
        else:
            change(path, **{key: OTHER_VALUES[file].get(key, "</s>" if key in checked else "x")})
        if key in unused:
            assert facts(folder) == usual, key
        elif key in FOLLOWED_EARLY or key.startswith("pooling_mode_") or file == "modules.json":
            pass
        elif key in checked:
            assert key.removesuffix("_name") in error_of(facts, folder).replace("_name", ""), key
        elif key == "activation_fn":
            pass
        else:
            assert facts(folder) != usual, key
        path.unlink() if content is None else path.write_text(content)


# Files beside the one whose keys are changed, without which they would have no effect.
_BESIDE = {
    "sentence_bert_config.json": {"tokenizer_config.json": {"do_lower_case": False}},
    "config_sentence_transformers.json": {
        "config_sentence_transformers.json": {"prompts": {"query": "q: "}}
    },
}
