"""`config.json`, read: the sizes of a model of transformers, checked, and the class that it names."""

import re
from collections.abc import Mapping
from typing import Any

from albert_tf.core import files
from albert_tf.core.errors import UserError, shortened
from albert_tf.formats import bert
from albert_tf.formats.weights import architecture_of, check_complete
from albert_tf.model.config import AlbertConfig
from albert_tf.model.head_names import ARCHITECTURES, PRETRAINING

_WITHOUT_CLASS = ("AlbertModel", "AlbertForMaskedLM")  # parts of an AlbertForPreTraining


def read_settings(path: str) -> dict[str, Any]:
    """The content of a model's `config.json`, checked; that of a BERT with the sizes of an equal ALBERT."""
    settings = files.read_json(path)
    check_words(settings, path)

    readable = {"model_type": ("albert", bert.MODEL_TYPE), "position_embedding_type": ("absolute",)}
    for name, expected in readable.items():
        value = settings.get(name, expected[0])
        if value not in expected:
            names = " or ".join(map(repr, expected))
            raise UserError(f"{path}: {name} is {shortened(value)}, expected {names}")

    _check_has_one_score(settings, path)
    if settings.get("model_type") == bert.MODEL_TYPE:
        settings = bert.with_albert_sizes(settings, path)
    check_complete(settings, path)
    return settings


def _check_has_one_score(settings: Mapping[str, Any], path: str) -> None:
    """Checks that a regression has one output; a classifier of several would answer with their softmax."""
    labels = settings.get("id2label")
    architectures = settings.get("architectures") or [""]
    is_classifier = str(architectures[0]).endswith("ForSequenceClassification")
    is_regression = settings.get("problem_type") == "regression"
    if is_classifier and is_regression and isinstance(labels, dict) and len(labels) > 1:
        reason = f"problem_type is 'regression' with {len(labels)} labels, expected one"
        raise UserError(f"{path}: {reason}: a text has one score here")


def architecture_in_file(settings: Mapping[str, Any]) -> Any:
    """The class of transformers that a `config.json` names, a value of any type; "" if it names none."""
    return (settings.get("architectures") or [""])[0]


def architecture_of_albert(settings: Mapping[str, Any]) -> Any:
    """The same, where a class of BERT has the name of the ALBERT's."""
    architecture = architecture_in_file(settings)
    if settings.get("model_type") == bert.MODEL_TYPE and isinstance(architecture, str):
        return re.sub("^Bert", "Albert", architecture)
    return architecture


def class_of(
    architecture: Any, our_section: Mapping, config: AlbertConfig, path: str, prefix: str
) -> str:
    """Name of our class for an architecture; if there are several, the folder's section `albert_tf` decides.

    `prefix` begins the names of classes in the file at `path`, "Bert" or "Albert"; in `architecture` it is "Albert".
    """
    named = our_section.get("model_class")
    if named and architecture_of(named, config) == architecture:
        return named

    for name, theirs in ARCHITECTURES.items():
        if theirs and theirs == architecture:
            return name

    if architecture not in ("", *_WITHOUT_CLASS):
        with_class = dict.fromkeys(theirs for theirs in ARCHITECTURES.values() if theirs)
        expected = ", ".join([*with_class, *_WITHOUT_CLASS])
        hint = "to read only its encoder, write AlbertModel there"
        message = f"architectures is {shortened(architecture)}, expected {expected}; {hint}"
        raise UserError(f"{path}: {message.replace('Albert', prefix)}")
    return PRETRAINING


def check_words(settings: Mapping[str, Any], path: str) -> None:
    """Checks that a file does not name a tokenizer of Japanese, which finds words in another way."""
    of_bert = {"word_tokenizer_type": "basic", "subword_tokenizer_type": "wordpiece"}
    of_japanese = [name for name, kind in of_bert.items() if settings.get(name, kind) != kind]
    if settings.get("tokenizer_class") == "BertJapaneseTokenizer":
        of_japanese.append("tokenizer_class")
    if of_japanese:
        name = of_japanese[0]
        raise UserError(f"{path}: {name} is {shortened(settings[name])}; expected a BertTokenizer")
