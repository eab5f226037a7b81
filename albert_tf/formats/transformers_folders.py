"""Folders of the transformers library, which may have the modules of sentence-transformers, too."""

from types import ModuleType

from albert_tf.formats import hugging_face, sentence_transformers


def layout_of(folder: str) -> ModuleType:
    """The layout of a folder that is one of the two: `sentence_transformers` if it has modules, or `hugging_face`."""
    return sentence_transformers if sentence_transformers.recognizes(folder) else hugging_face
