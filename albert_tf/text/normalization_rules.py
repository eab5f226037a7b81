"""Rules of normalization as SentencePiece takes them: lines of code points, and the compiled table of a model."""

import io
from collections.abc import Iterable

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto


def lines_of(rules: Iterable[tuple[str, str]]) -> str:
    """A line for each text and what replaces it: code points in hexadecimal, a tab, and code points."""
    return "".join(f"{_code_points(text)}\t{_code_points(new)}\n" for text, new in rules)


def compiled(**normalization: str) -> bytes:
    """The compiled table of `normalization_rule_name=...` or of a file, `normalization_rule_tsv=...`.

    SentencePiece compiles rules only when it trains a model, so a tiny one is trained.
    """
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b"]),
        model_writer=model,
        model_type="char",
        vocab_size=10,
        hard_vocab_limit=False,
        minloglevel=2,
        **normalization,
    )
    return ModelProto.FromString(model.getvalue()).normalizer_spec.precompiled_charsmap


def _code_points(text: str) -> str:
    return " ".join(f"{ord(char):X}" for char in text)
