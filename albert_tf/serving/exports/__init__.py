"""The forms of exports, one row for each. Another form is another module and its row here; all load without TensorFlow.

The flags of `albert-tf export`, their choices and help, and the loading of exports are made from the rows.
"""

from albert_tf.serving.exports.form import QUANTIZATIONS, Form
from albert_tf.serving.exports.onnx import ONNX
from albert_tf.serving.exports.saved_model import SAVED_MODEL
from albert_tf.serving.exports.tflite import TFLITE
from albert_tf.serving.exports.transformers_js import TRANSFORMERS_JS
from albert_tf.serving.exports.web import WEB

EXPORTS: dict[str, Form] = {
    form.name: form for form in (SAVED_MODEL, TFLITE, ONNX, WEB, TRANSFORMERS_JS)
}


def help_of_format() -> str:
    """What each form is."""
    return "; ".join(f"{name}: {form.description}" for name, form in EXPORTS.items()) + "."


def help_of_quantization() -> str:
    """What each quantization is, and which forms have which."""
    meanings = "; ".join(f"{name}: {QUANTIZATIONS[name]}" for name in quantizations())
    several = [form for form in EXPORTS.values() if len(form.quantizations) > 1]
    by_form = "; ".join(
        f"{form.name}: {', '.join(form.quantizations)} (default: {form.default_quantization})"
        for form in several
    )
    return f"Weights of the export. {meanings}. {by_form}."


def quantizations() -> tuple[str, ...]:
    """The quantizations of all forms, each once."""
    names = [name for form in EXPORTS.values() for name in form.quantizations]
    return tuple(dict.fromkeys(names))


def form_that_computes(path: str) -> Form | None:
    """The form of the export at a path, if it can be loaded as it is; None for everything else."""
    for form in EXPORTS.values():
        if form.recognizes(path):
            return form
    return None
