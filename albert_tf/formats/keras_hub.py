"""Hugging Face folders for keras-hub, which reads `spiece.model` alone, without cleaning text, and one kind of ALBERT.

The original cleans text before SentencePiece sees it (`tokenizer.clean_text`), and so do this project and
`tokenizer.json`. With the plain model, every capital letter is unknown in keras-hub; the one that is written here
cleans text by its own normalization. The folder has `tokenizer.json` and the like for other programs, too.

Source: keras-hub 0.29, `utils/transformers/convert_albert.py`, `models/albert/albert_backbone.py`.
"""

import os
import sys
import tempfile
import unicodedata
from collections.abc import Collection, Iterator

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec

from albert_tf.core.errors import UserError
from albert_tf.formats import bert
from albert_tf.formats.tokenizer_files import NEVER
from albert_tf.formats.weights import POOLER
from albert_tf.model.activations import ACTIVATIONS
from albert_tf.model.heads import ModelWithHead
from albert_tf.text import normalization_rules
from albert_tf.text.tokenizer import SentencePieceTokenizer, Tokenizer

_ACTIVATION = "gelu_new"  # as transformers names it
_NOT_TEXT = ("Cn", "Cs", "Co")  # not assigned, half a character, private
_EPSILON = 1e-12  # of the LayerNorms
_HANGUL = [chr(code) for code in range(0xAC00, 0xD7A4)]  # syllables, of two or three letters


def vocabulary_of(
    model: ModelWithHead, tokenizer: Tokenizer | None, left_out: Collection[str]
) -> dict[str, bytes]:
    """The vocabulary for keras-hub, content by name; none without a tokenizer.

    Raises:
      UserError: keras-hub would compute another model, or other ids.
    """
    config = model.config
    names_of_activation = ACTIVATIONS[config.hidden_act].transformers or (config.hidden_act,)
    # What keras-hub does not compute -> whether it is so in this model.
    is_obstacle = {
        "is a BERT": bert.is_bert(config),
        f"has hidden_act={config.hidden_act}": _ACTIVATION not in names_of_activation,
        f"has layer_norm_eps={config.layer_norm_eps}": config.layer_norm_eps != _EPSILON,
        "is a classifier of vectors": model.reads_vectors,
        "has no trained pooler": bool({*POOLER} & {*left_out}),
        "has no SentencePiece vocabulary": not isinstance(tokenizer, SentencePieceTokenizer | None),
    }
    obstacles = [reason for reason, is_so in is_obstacle.items() if is_so]
    if obstacles:
        expected = f"an ALBERT with {_ACTIVATION}, a pooler and SentencePiece"
        raise UserError(
            f"keras_hub: the model {obstacles[0]}, and keras-hub computes only {expected}"
        )
    if not isinstance(tokenizer, SentencePieceTokenizer):
        return {}
    for token in tokenizer.added_tokens:
        if token.is_found:
            reason = f"the vocabulary has added tokens such as {token.text}"
            raise UserError(f"keras_hub: {reason}, after which keras-hub would give other ids")
    if tokenizer.model().trainer_spec.model_type != TrainerSpec.UNIGRAM:
        raise UserError("keras_hub: the vocabulary is no unigram model of SentencePiece")
    return {tokenizer.file_name: folded(tokenizer)}


def folded(tokenizer: SentencePieceTokenizer) -> bytes:
    """The content of a unigram model that gives the ids of the tokenizer for texts that nobody has cleaned.

    Two rules look at neighbors, which a table of characters cannot: a capital sigma becomes σ at the end of a word,
    too, and compatibility letters of Korean, such as ㄱ and ㅏ, do not become a syllable together.
    """
    proto = tokenizer.model()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rules.tsv")
        with open(path, "w", encoding="ascii") as file:
            file.write(normalization_rules.lines_of(_rules(tokenizer, proto)))
        table = normalization_rules.compiled(normalization_rule_tsv=path)
    proto.normalizer_spec.name = "user_defined"
    proto.normalizer_spec.precompiled_charsmap = table
    proto.normalizer_spec.remove_extra_whitespaces = True
    for piece in proto.pieces:  # the digit-comma rule: "▁1999," becomes "▁1999" ","
        is_plain = piece.type == ModelProto.SentencePiece.NORMAL
        if is_plain and piece.piece[-2:-1].isdigit() and piece.piece.endswith(","):
            piece.score += NEVER
    return proto.SerializeToString()


def _rules(tokenizer: SentencePieceTokenizer, proto: ModelProto) -> Iterator[tuple[str, str]]:
    """Characters, and sequences that are composed, with what cleaning and the model's own table make of them."""
    only_table = tokenizer.model()
    for name in ("add_dummy_prefix", "remove_extra_whitespaces", "escape_whitespaces"):
        setattr(only_table.normalizer_spec, name, False)
    table = sentencepiece.SentencePieceProcessor(model_proto=only_table.SerializeToString())

    def cleaned(text: str) -> str:
        return " " if text.isspace() else table.normalize(tokenizer.clean(text))

    for code in range(1, sys.maxunicode + 1):
        char = chr(code)
        if unicodedata.category(char) in _NOT_TEXT:
            continue
        if cleaned(char) != char:
            yield char, cleaned(char)
        parts = unicodedata.normalize("NFD", char)
        if len(parts) > 1 and not any(map(unicodedata.combining, parts)):
            yield parts, cleaned(parts)
    for syllable in _HANGUL:
        parts = unicodedata.normalize("NFD", syllable)
        if len(parts) == 3:  # a syllable of two letters, and the third
            yield unicodedata.normalize("NFC", parts[:2]) + parts[2], cleaned(parts)
