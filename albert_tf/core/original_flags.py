"""The flags of google-research/albert that do not exist here, and their replacements (docs/migrating.md has all flags).

Every other flag of the original has the same name here. The flags are those of commit 4ae12a2; flags of programs that
this commit does not have are those of the newest commit.
"""

from collections.abc import Container

_FEATURES = "not needed: features are made in seconds when a run starts"
_TPU_VM = "not needed: a program on a TPU VM finds its TPU by --tpu_name=local"
_RACE_FILE = "not needed: --data_dir names the folder"
_NEW_NAME = {
    "albert_directory": "model",
    "albert_hub_module_handle": "init_checkpoint",
    "dropout_prob": "classifier_dropout_prob",
    "export_path": "output_dir",
    "init_from_group0": "warm_start_from_shallower",
    "iterations_per_loop": "steps_per_loop",
    "num_keep_checkpoint": "keep_checkpoint_max",
    "parallel": "num_workers",
    "predict_batch_size": "eval_batch_size",
    "train_step": "num_train_steps",
    "use_tpu": "tpu_name",
    "warmup_step": "num_warmup_steps",
}
_EXPLANATIONS = {
    "cached_dir": _FEATURES,
    "checkpoint_name": "give the checkpoint's path in --model",
    "end_n_top": "always 5, the original's default",
    "eval_file": _RACE_FILE,
    "export_dir": "albert-tf export RUN --output_dir=FOLDER exports a finished run",
    "gcp_project": _TPU_VM,
    "high_only": "use --level=high",
    "input_file_mode": "not needed: text is read as UTF-8; see --invalid_utf8",
    "masked_lm_budget": "the released code does not use it; records of --masking=dynamic are masked while training",
    "master": _TPU_VM,
    "middle_only": "use --level=middle",
    "num_tpu_cores": "not needed: all cores are used",
    "predict_feature_file": _FEATURES,
    "predict_feature_left_file": _FEATURES,
    "predict_file": _RACE_FILE,
    "start_n_top": "always 5, the original's default",
    "task_name": "not needed here",
    "threshold_to_export": "exports return probabilities: compare them with your threshold",
    "tpu_zone": _TPU_VM,
    "train_feature_file": _FEATURES,
    "train_file": _RACE_FILE,
    "use_einsum": "not needed: every export converts to TFLite (--format=tflite)",
}


_BOOLEAN = {"high_only", "init_from_group0", "middle_only", "use_einsum", "use_tpu"}
_FALSE = {"false", "f", "no", "n", "0"}


def replacement(argument: str, known: Container[str] = ()) -> str:
    """What to write instead of a flag of the original ("--train_step=1000", "--nouse_tpu" or only "train_step").

    It is "" if the argument is not such a flag, or has the same name here. `known` are the flags of the program.
    """
    name, _, value = argument.lstrip("-").partition("=")
    positive = name.removeprefix("no")
    if positive in _BOOLEAN and (positive != name or value.lower() in _FALSE):
        return "leave it out"
    if name in _NEW_NAME:
        return f"--{_NEW_NAME[name]} replaces it"
    explanation = _EXPLANATIONS.get(name, "")
    return "" if explanation == _RACE_FILE and "data_dir" not in known else explanation
