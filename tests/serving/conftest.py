"""Fixtures: a tiny model of each kind with its vocabulary, and its export as a SavedModel."""

import functools
import pathlib
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import save_pretrained
from albert_tf.export import export_model
from albert_tf.model import heads
from albert_tf.serving import onnx_model
from albert_tf.tasks.classification.text_pairs import TextExample, make_pair_features
from albert_tf.tasks.sequences import PairSettings
from albert_tf.text.tokenizer import Tokenizer
from tests.helpers import TINY, train_spm

LENGTH = 29  # positions of the models
SENTENCES = ["the cat sat on a mat, late.", "a dog ran to the old house (1999), it was cold - why?"]
CONFIG = TINY.replace(
    max_position_embeddings=LENGTH,
    num_hidden_layers=1,  # building graphs is what takes the time here
    initializer_range=0.3,  # so that outputs differ from text to text
    hidden_dropout_prob=0.1,
)
LABELS = {
    "pairs": ("yes", "no", "perhaps"),
    "score": ("similarity",),
    "labels": ("colour", "size", "mood", "name"),
    "vectors": ("red", "green", "blue", "grey", "white"),
    "tags": ("O", "B-A", "I-A", "B-B", "I-B"),
    "choices": tuple("ABCD"),
}
CLASSES = {
    "pretrained": heads.AlbertForPreTraining,
    "pairs": heads.AlbertForSequenceClassification,
    "score": heads.AlbertForSequenceClassification,
    "labels": heads.AlbertForSequenceClassification,
    "vectors": heads.AlbertForSequenceClassification,
    "embedder": heads.AlbertForEmbedding,
    "tags": heads.AlbertForTokenClassification,
    "choices": heads.AlbertForMultipleChoice,
    "span": heads.AlbertForSpan,
    "span_or_none": heads.AlbertForSpanOrNone,
}
# How the classifier "vectors" makes the vector of a text that it reads: all that a model of others may have.
VECTORS = {
    "pooling": "mean+cls",
    "modules": [{"kind": "dense", "size": 11, "activation": "tanh"}, {"kind": "layer_norm"}],
    "projection_size": 7,
    "normalize": True,
}
SQUAD = {"doc_stride": 5, "max_query_length": 7, "max_answer_length": 4, "n_best_size": 6}
TASKS = {
    "pairs": {"max_seq_length": 13},
    "labels": {"max_seq_length": 13},
    "vectors": {"max_seq_length": 13},
    "tags": {"max_seq_length": 9, "doc_stride": 3, "word_separator": "space"},
    "choices": {"max_seq_length": 19, "max_qa_length": 6},
    "span": {"max_seq_length": 23, **SQUAD},
    "span_or_none": {"max_seq_length": 23, **SQUAD, "null_threshold": 50.0},
}


def random_texts(seed: int, number: int, most: int = 12) -> list[str]:
    """Texts of up to 11 words, some empty."""
    rng = np.random.default_rng(seed)
    words = " ".join(SENTENCES).split()
    return [" ".join(rng.choice(words, rng.integers(0, most))) for _ in range(number)]


def items_of(kind: str) -> list:
    """Items that a predictor of a kind answers, some too long for the model."""
    texts = random_texts(1, 9)
    others = random_texts(2, 9)
    if kind == "choices":
        options = [random_texts(seed, 4, 4) for seed in range(9)]
        rows = zip(texts, ["why _ ?", *others[1:]], options, strict=True)
        return [{"context": a, "question": b, "options": c} for a, b, c in rows]
    if kind in ("span", "span_or_none"):
        contexts = [" ".join(random_texts(seed, 3)) + " Café" for seed in range(9)]
        return [{"question": a, "context": b} for a, b in zip(texts, contexts, strict=True)]
    if kind in ("pairs", "score", "labels", "vectors"):
        return [{"text_a": a, "text_b": b} for a, b in zip(texts, others, strict=True)]
    return [*texts, "a [MASK] sat on [MASK].", "a\tb"] if kind == "pretrained" else texts


def features_of(model, seed: int, batch: int, length: int) -> dict[str, np.ndarray]:
    """Features for a model, int32 [B, L] (multiple choice: [B, C, L]); the sequences have random lengths."""
    rng = np.random.default_rng(seed)
    shape = [batch, length]
    if isinstance(model, heads.AlbertForMultipleChoice):
        shape.insert(1, 3)
    lengths = rng.integers(min(2, length), length + 1, [*shape[:-1], 1])
    mask = np.arange(length) < lengths
    features = {
        "input_ids": rng.integers(0, model.config.vocab_size, shape) * mask,
        "input_mask": mask,
        "segment_ids": (np.arange(length) > lengths // 2) * mask,
    }
    if isinstance(model, heads.AlbertForSpanOrNone):
        # Candidates must be allowed positions: the other positions have equal scores, so their order is undefined.
        most = length - max(model.num_starts, model.num_ends)
        features["p_mask"] = rng.integers(0, 2, shape) * (np.arange(length) < most)
    return {name: array.astype(np.int32) for name, array in features.items()}


def outputs_of(model, features, file: str = "model.onnx") -> dict[str, np.ndarray]:
    """The model's own outputs, under their names in one of its ONNX files."""
    if not isinstance(model, heads.AlbertForPreTraining):
        return {name: tensor.numpy() for name, tensor in model(features).items()}
    shape = features["input_ids"].shape
    positions = np.broadcast_to(np.arange(shape[1]), shape)
    outputs = model({**features, "masked_lm_positions": positions})
    is_masked_lm = file == onnx_model.MASKED_LM
    names = {"logits": "masked_lm_logits"} if is_masked_lm else onnx_model.PRETRAINED_OUTPUTS
    return {name: outputs[ours].numpy() for name, ours in names.items()}


def assert_close_to_model(model, features, file: str, content: bytes, most: float) -> None:
    """Checks that a file in small weights computes the model's outputs, to `most` of their spread."""
    expected = outputs_of(model, features, file)
    found = onnx_model.OnnxModel({file: content}, model.config).outputs(file, features)
    assert found.keys() == expected.keys()
    for key, array in found.items():
        assert array.shape == expected[key].shape
        if "top" in key:  # close scores may change places
            continue
        usual = expected[key] > -1e20  # the others are not allowed as answers
        spread = max(1.0, float(np.std(expected[key][usual])))
        error = np.sqrt(np.mean(np.square((array - expected[key])[usual]))) / spread
        assert error < most, (key, error)


@pytest.fixture(scope="session")
def spm(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("spm") / "spiece.model"
    return train_spm(path, SENTENCES * 9, vocab_size=60, hard_vocab_limit=False)


@pytest.fixture(scope="session")
def tokenizer(spm) -> Tokenizer:
    return Tokenizer.from_file(spm)


@pytest.fixture(scope="session")
def sources(spm, tokenizer, tmp_path_factory) -> Callable[[str], str]:
    """A function that gives the folder of a model of a kind; change nothing in it."""
    folder = tmp_path_factory.mktemp("models")

    @functools.cache
    def source(kind: str) -> str:
        config = CONFIG.replace(vocab_size=tokenizer.vocab_size)
        if kind in LABELS:
            pooling = "embedding" if kind == "vectors" else "pooler"
            config = config.with_labels(
                LABELS[kind], kind, is_multi_label=kind == "labels", pooling=pooling
            )
        if kind == "vectors":
            config = config.replace(foreign={**config.foreign, "sentence_embedding": VECTORS})
        model = CLASSES[kind](config, seed=5)
        if kind in ("pairs", "labels", "vectors"):  # so that different texts get different labels
            texts = zip(random_texts(1, 40), random_texts(2, 40), strict=True)
            examples = [TextExample("", *pair) for pair in texts]
            table = make_pair_features(PairSettings(tokenizer, 13), examples)
            features = table.batch(np.arange(40), 13, ["input_ids", "segment_ids"])
            model.head.output_bias.assign(-tf.reduce_mean(model(features)["logits"], axis=0))
        path = str(folder / kind)
        save_pretrained(model, path, spm_model_file=spm, task=TASKS.get(kind, {}))
        return path

    return source


@pytest.fixture(scope="session")
def exported(sources, tmp_path_factory) -> Callable[[str], pathlib.Path]:
    """A function that gives the version's folder of a kind's SavedModel; change nothing in it."""
    folder = tmp_path_factory.mktemp("exported")
    return functools.cache(
        lambda kind: pathlib.Path(export_model(sources(kind), str(folder / kind)))
    )


@pytest.fixture(scope="session")
def served(exported) -> Callable:
    """A function that gives the loaded SavedModel of a kind."""
    return functools.cache(lambda kind: tf.saved_model.load(str(exported(kind))))
