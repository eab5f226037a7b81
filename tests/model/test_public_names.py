"""The names that users import from `albert_tf`."""

import albert_tf
from albert_tf.model import heads


def test_every_model_class_is_public():
    for name, model_class in heads.MODEL_CLASSES.items():
        assert getattr(albert_tf, name) is model_class


def test_help_describes_every_public_name():
    lines = albert_tf.__doc__.splitlines()
    for name in albert_tf.__all__:
        assert callable(getattr(albert_tf, name))
        assert any(line.split()[:1] == [name] and len(line.split()) > 3 for line in lines), name
