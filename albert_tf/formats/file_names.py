"""The names of files that several layouts have, or that several packages look for."""

CONFIG = "config.json"  # of runs, and of Hugging Face folders
WEIGHTS = "model.safetensors"
WEIGHT_FILES = (WEIGHTS, "pytorch_model.bin")  # preferred first
TOKENIZER_SETTINGS = "tokenizer_config.json"
TF1_CONFIG = "albert_config.json"  # of the original's layout, and of exports
TF1_OWN_KEY = "_albert_tf"  # our own settings in it; the original ignores unknown keys

# Of SavedModels, and of our own exports.
GRAPH = "saved_model.pb"
ASSETS = "assets"  # folder of a SavedModel
EXPORT = "export.json"  # describes the model of an export of ours
ONNX_MODEL = "model.onnx"  # of an ONNX export, which predictors compute
