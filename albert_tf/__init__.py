"""ALBERT for TensorFlow 2.

  load_predictor                   a finished model of any task, which answers texts
  Tokenizer                        text -> token ids, and back
  load_pretrained                  a model from a folder, a run, a checkpoint or a TF-Hub module
  save_pretrained                  a model to a folder in the Hugging Face or the original format
  AlbertConfig                     the sizes of a model, from a name, a file or keyword arguments
  AlbertEncoder                    token ids -> hidden states and pooled output
  AlbertForPreTraining             encoder with masked-LM and sentence-order heads
  AlbertForSequenceClassification  encoder with a classifier or a regression on texts and text pairs
  AlbertForTokenClassification     encoder with scores of labels at each position (tagging)
  AlbertForMultipleChoice          encoder with a score for each choice (RACE)
  AlbertForSpan                    encoder with scores of answer starts and ends (SQuAD 1.1)
  AlbertForSpanOrNone              the same with a score of having no answer (SQuAD 2.0)
  AlbertForEmbedding               encoder with one vector for each text
  fold                             a BERT or ALBERT -> a smaller ALBERT, which learns from it: .distill(texts)
  UserError                        an error that the user can correct: a wrong file, flag or value

The programs of `albert-tf` are functions, too, whose arguments are their flags: classify, tag, squad, race, embed,
pretrain, distill, predict, search, score, convert, export, tune, serve, split_sentences, train_sentencepiece,
create_pretraining_data and sample_corpus; training returns a `Run` with `results` and `predictor`.

A name is loaded when it is first used, because TensorFlow takes seconds to load.
"""

import importlib
import os
import sys

if sys.platform == "win32":
    raise ImportError("albert-tf runs on Linux; on Windows, install it in WSL")

# TensorFlow reads this when it is imported: no start-up log about missing GPUs, only errors that end the process.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# `__init__.pyi` has the same names, for type checkers and editors.
_PUBLIC = {
    "load_predictor": "serving.predictors",
    "Tokenizer": "formats.model_tokenizer",
    "load_pretrained": "formats.pretrained",
    "save_pretrained": "formats.pretrained",
    "AlbertConfig": "model.config",
    "AlbertEncoder": "model.heads",
    "AlbertForPreTraining": "model.heads",
    "AlbertForSequenceClassification": "model.heads",
    "AlbertForMultipleChoice": "model.heads",
    "AlbertForSpan": "model.heads",
    "AlbertForSpanOrNone": "model.heads",
    "AlbertForTokenClassification": "model.heads",
    "AlbertForEmbedding": "model.heads",
    "UserError": "core.errors",
    "Run": "functions",
}
# Functions of programs (`functions.py`).
_FUNCTIONS = (
    "classify",
    "tag",
    "squad",
    "race",
    "embed",
    "split_sentences",
    "train_sentencepiece",
    "create_pretraining_data",
    "sample_corpus",
)
# Those that are also modules, which can be called (`core/callable_modules.py`).
_CALLABLE_MODULES = (
    "fold",
    "pretrain",
    "distill",
    "predict",
    "search",
    "score",
    "convert",
    "export",
    "tune",
    "serve",
)
__all__ = [*_PUBLIC, *_FUNCTIONS, *_CALLABLE_MODULES]
__version__ = "0.1.0"


def __getattr__(name: str):
    if name in _CALLABLE_MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _FUNCTIONS:
        return importlib.import_module(f"{__name__}.functions").function_of(name)
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)


def __dir__():
    return [*globals(), *__all__]
