"""What a user reads where a package is not installed, as in an environment for exports alone (`make runtime`)."""

import importlib.util

# Packages by the names under which they are imported, where pip knows them by others.
_DISTRIBUTIONS = {
    "ai_edge_litert": "ai-edge-litert",
    "official": "tf-models-official",
    "sklearn": "scikit-learn",
    "tensorflow_text": "tensorflow-text",
    "tf_keras": "tf-keras",
}
_WITH_TENSORFLOW = ("official", "tensorflow", "tensorflow_text", "tf_keras")


def line_about(error: ModuleNotFoundError) -> str:
    """The message about a package that is not installed; "" if the package is, and lacks a module of its own."""
    package = (error.name or "").partition(".")[0]
    if not package or importlib.util.find_spec(package):
        return ""

    if package in _WITH_TENSORFLOW:
        reason = "this needs TensorFlow, which is not installed here"
        advice = (
            "install the whole of albert-tf with pip install, or give an ONNX export as the model"
        )
        return f"{reason}; {advice}"

    distribution = _DISTRIBUTIONS.get(package, package)
    return f"this needs the package {distribution}, which is not installed here: pip install {distribution}"
