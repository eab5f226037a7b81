"""ALBERT for TensorFlow 2: the public names, loaded when they are first used (TensorFlow takes seconds)."""

import importlib

_PUBLIC = {
    "AlbertConfig": "model.config",
    "AlbertEncoder": "model.encoder",
    "AlbertForPreTraining": "model.heads",
    "Tokenizer": "text.tokenizer",
    "UserError": "core.errors",
    "load_predictor": "serving.predictors",
    "load_pretrained": "formats.pretrained",
    "save_pretrained": "formats.pretrained",
}
__all__ = sorted(_PUBLIC)
__version__ = "0.1.0"


def __getattr__(name: str):
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)


def __dir__():
    return [*globals(), *__all__]
