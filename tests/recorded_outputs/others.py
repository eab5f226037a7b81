"""Small models of others with every setting that is followed here, and what the others' libraries answer.

    python tests/recorded_outputs/others.py

writes `others.json` with sentence-transformers 6 and transformers 5, which the tests do not need. The folders are made
from random numbers with NumPy alone, so the tests make the same ones.
"""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import safetensors.numpy

RECORDED = pathlib.Path(__file__).parent / "others.json"
WORDS = [
    "the",
    "quiet",
    "loud",
    "deep",
    "harbour",
    "night",
    "boat",
    "tea",
    "word",
    "stone",
    "at",
    "we",
    "study",
    "a",
    "quay",
    "noon",
    "é",
]
LETTERS = [*"abcdefghiklmnopqrstuvxyz", *".,[]", "中", "文"]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##s", *LETTERS, "The", "E", "É"]
TOKENS = list(dict.fromkeys(TOKENS))
HIDDEN, INNER, LAYERS, POSITIONS, HEADS = 32, 37, 3, 26, 4
TEXTS = ["deep harbour at noon", "the quiet boats[SEP]we study tea", "", "word " * 30 + "at noon ."]
DOCUMENTS = ["a boat", "the quiet harbour at noon", "tea", "deep deep harbour night ."]
PAIRS = [("quiet harbour", "the harbour at noon"), ("tea", "stone , stone"), ("boat", TEXTS[3])]
CLEANED = "The É 中文 boats"
_TORCH = "torch.nn.modules.activation."
_ACTIVATIONS = [
    "Tanh",
    "ReLU",
    "GELU",
    "Sigmoid",
    "SiLU",
    "Mish",
    "LeakyReLU",
    "ELU",
    "CELU",
    "SELU",
    "Softplus",
    "Softsign",
    "LogSigmoid",
    "Tanhshrink",
    "Hardtanh",
    "ReLU6",
    "Hardsigmoid",
    "Hardswish",
]


def dense(activation: str, width: int, size: int, **values: Any) -> tuple[str, dict[str, Any]]:
    """A module Dense."""
    activation = activation if "." in activation else _TORCH + activation
    sizes = {"in_features": width, "out_features": size, "bias": True}
    return "Dense", {**sizes, "activation_function": activation, **values}


# Name -> values of `1_Pooling/config.json`, and the modules after it.
MODULES: dict[str, tuple[dict[str, Any], Sequence[tuple[str, dict[str, Any]]]]] = {
    "mean": ({"pooling_mode_mean_tokens": True}, ()),
    "root": ({"pooling_mode_mean_sqrt_len_tokens": True}, ()),
    "weighted": ({"pooling_mode_weightedmean_tokens": True}, ()),
    "last": ({"pooling_mode_lasttoken": True}, ()),
    "three": (
        {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
        [dense("Tanh", 2 * HIDDEN, 7), ("Dropout", {"dropout": 0.3})],
    ),
    "other_order": ({"pooling_mode": ["max", "cls"]}, [("Normalize", {})]),
    "two_dense": (
        {"pooling_mode": "mean"},
        [dense("GELU", HIDDEN, 19), dense("torch.nn.Tanh", 19, 11, bias=False)],
    ),
    "layer_norm": (
        {"pooling_mode_cls_token": True},
        [
            ("LayerNorm", {"dimension": HIDDEN}),
            ("Normalize", {}),
            dense("torch.nn.modules.linear.Identity", HIDDEN, 9),
        ],
    ),
    "every_activation": (
        {"pooling_mode_mean_tokens": True},
        [dense(name, HIDDEN if not n else 6, 6) for n, name in enumerate(_ACTIVATIONS)],
    ),
}


def write_bert(folder: pathlib.Path, kind: str = "model", **settings: Mapping[str, Any]) -> None:
    """A BERT ("model"), with one score ("cross") or two labels ("two"); `settings` are added to files by their stem."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(7)
    prefix = "" if kind == "model" else "bert."
    tensors: dict[str, np.ndarray] = {}

    def add(name: str, *shape: int, around: float = 0.0) -> None:
        values = random.normal(around, 0.3, shape)
        tensors[name] = values.astype(np.float32)

    def add_norm(name: str) -> None:
        add(f"{name}.weight", HIDDEN, around=1.0)
        add(f"{name}.bias", HIDDEN)

    def add_dense(name: str, width: int, size: int) -> None:
        add(f"{name}.weight", size, width)
        add(f"{name}.bias", size)

    for name, rows in (("word", len(TOKENS)), ("position", POSITIONS), ("token_type", 2)):
        add(f"{prefix}embeddings.{name}_embeddings.weight", rows, HIDDEN)
    add_norm(f"{prefix}embeddings.LayerNorm")
    for layer in range(LAYERS):
        prefix_of_layer = f"{prefix}encoder.layer.{layer}"
        for name in ("query", "key", "value"):
            add_dense(f"{prefix_of_layer}.attention.self.{name}", HIDDEN, HIDDEN)
        add_dense(f"{prefix_of_layer}.attention.output.dense", HIDDEN, HIDDEN)
        add_norm(f"{prefix_of_layer}.attention.output.LayerNorm")
        add_dense(f"{prefix_of_layer}.intermediate.dense", HIDDEN, INNER)
        add_dense(f"{prefix_of_layer}.output.dense", INNER, HIDDEN)
        add_norm(f"{prefix_of_layer}.output.LayerNorm")
    add_dense(f"{prefix}pooler.dense", HIDDEN, HIDDEN)
    num_labels = {"model": 0, "cross": 1, "two": 2}[kind]
    if num_labels:
        add_dense("classifier", HIDDEN, num_labels)
    safetensors.numpy.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "model_type": "bert",
        "architectures": ["BertForSequenceClassification" if num_labels else "BertModel"],
        "vocab_size": len(TOKENS),
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": INNER,
        "hidden_act": "gelu",
        "max_position_embeddings": POSITIONS,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
    }
    if num_labels:
        config["id2label"] = {str(label): f"LABEL_{label}" for label in range(num_labels)}
        config["label2id"] = {f"LABEL_{label}": label for label in range(num_labels)}
    (folder / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    write_json(folder / "config.json", {**config, **settings.get("config", {})})
    tokenizer = {"tokenizer_class": "BertTokenizer", **settings.get("tokenizer_config", {})}
    write_json(folder / "tokenizer_config.json", tokenizer)


def write_embedder(
    folder: pathlib.Path,
    pooling: Mapping[str, Any] | None = None,
    modules: Sequence[tuple[str, dict[str, Any]]] = (),
    about: Mapping[str, Any] | None = None,
    **settings: Mapping[str, Any],
) -> None:
    """A folder of sentence-transformers; `about` is its `config_sentence_transformers.json`."""
    write_bert(folder, **settings)
    pooling = pooling or {"pooling_mode_mean_tokens": True}
    written = [("Pooling", {"word_embedding_dimension": HIDDEN, **pooling}), *modules]
    entries = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
    ]
    random = np.random.default_rng(9)
    for number, (kind, values) in enumerate(written, start=1):
        place = f"{number}_{kind}"
        type = f"sentence_transformers.models.{kind}"
        entries.append({"idx": number, "name": str(number), "path": place, "type": type})
        (folder / place).mkdir()
        write_json(folder / place / "config.json", values)
        tensors = {}
        if kind == "Dense":
            shape = values["out_features"], values["in_features"]
            tensors["linear.weight"] = random.normal(0, shape[1] ** -0.5, shape).astype(np.float32)
            if values["bias"]:
                tensors["linear.bias"] = random.normal(0, 1, shape[0]).astype(np.float32)
        if kind == "LayerNorm":
            tensors["norm.weight"] = random.normal(1, 0.3, HIDDEN).astype(np.float32)
            tensors["norm.bias"] = random.normal(0, 0.3, HIDDEN).astype(np.float32)
        if tensors:
            safetensors.numpy.save_file(tensors, folder / place / "model.safetensors")
    write_json(folder / "modules.json", entries)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 23, "do_lower_case": False})
    if about:
        write_json(folder / "config_sentence_transformers.json", about)


def write_json(path: pathlib.Path, values: Any) -> None:
    """Writes a value as JSON."""
    path.write_text(json.dumps(values))


# Name -> values of `config.json` and `tokenizer_config.json` of a cross-encoder with one score.
CROSS_ENCODERS: dict[str, dict[str, dict[str, Any]]] = {
    "default": {},
    "regression": {"config": {"problem_type": "regression"}},
    "old_identity": {
        "config": {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}
    },
    "old_sigmoid": {"config": {"sbert_ce_default_activation_function": "torch.nn.Sigmoid"}},
    "short": {
        "tokenizer_config": {"model_max_length": 12},
        "config": {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}},
    },
    "left": {"tokenizer_config": {"model_max_length": 12, "truncation_side": "left"}},
}
# Name -> values of `tokenizer_config.json` that change tokens.
CLEANINGS: dict[str, dict[str, Any]] = {
    "usual": {},
    "cased": {"do_lower_case": False},
    "cased_without_accents": {"do_lower_case": False, "strip_accents": True},
    "lower_with_accents": {"strip_accents": False},
    "chinese_in_words": {"tokenize_chinese_chars": False},
    "cased_chinese_in_words": {"do_lower_case": False, "tokenize_chinese_chars": False},
}
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")


def record(folder: pathlib.Path) -> dict[str, Any]:
    """What the libraries answer."""
    import torch
    from sentence_transformers import CrossEncoder, SentenceTransformer
    from transformers import AutoTokenizer, pipeline

    torch.set_num_threads(1)
    found: dict[str, Any] = {name: {} for name in ("vectors", "similarity", "scores", "answers")}
    for name, (pooling, modules) in MODULES.items():
        write_embedder(folder / name, pooling, modules)
        model = SentenceTransformer(str(folder / name), device="cpu")
        found["vectors"][name] = model.encode(TEXTS).tolist()
    write_embedder(folder / "left", tokenizer_config={"truncation_side": "left"})
    model = SentenceTransformer(str(folder / "left"), device="cpu")
    found["vectors"]["left"] = model.encode(TEXTS).tolist()
    for name in SIMILARITIES:
        write_embedder(folder / name, about={"similarity_fn_name": name})
        model = SentenceTransformer(str(folder / name), device="cpu")
        vectors = model.encode(TEXTS[:2]), model.encode(DOCUMENTS)
        found["similarity"][name] = model.similarity(*vectors).tolist()
    for name, settings in CROSS_ENCODERS.items():
        write_bert(folder / f"cross_{name}", "cross", **settings)
        cross = CrossEncoder(str(folder / f"cross_{name}"), device="cpu")
        found["scores"][name] = cross.predict(PAIRS).tolist()
        classify = pipeline("text-classification", str(folder / f"cross_{name}"), device="cpu")
        pairs = [{"text": first, "text_pair": second} for first, second in PAIRS]
        length = min(classify.tokenizer.model_max_length, POSITIONS)
        answers = classify(pairs, truncation=True, max_length=length)
        found["answers"][name] = [answer["score"] for answer in answers]
    write_bert(folder / "two", "two", tokenizer_config={"model_max_length": 9})
    classify = pipeline("text-classification", str(folder / "two"), device="cpu", top_k=None)
    (scores,) = classify([TEXTS[3]], truncation=True)
    found["two"] = {score["label"]: score["score"] for score in scores}
    found["tokens"] = {}
    for name, settings in CLEANINGS.items():
        write_bert(folder / f"cleaning_{name}", tokenizer_config=settings)
        tokenizer = AutoTokenizer.from_pretrained(str(folder / f"cleaning_{name}"))
        found["tokens"][name] = tokenizer.tokenize(CLEANED)
    return found


def main() -> None:
    """Writes `others.json`, numbers with eight digits."""
    import tempfile

    def rounded(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: rounded(part) for name, part in value.items()}
        if isinstance(value, list):
            return [rounded(part) for part in value]
        return float(f"{value:.8g}") if isinstance(value, float) else value

    with tempfile.TemporaryDirectory() as folder:
        found = rounded(record(pathlib.Path(folder)))
    lines = [
        f" {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}"
        for name, value in found.items()
    ]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
