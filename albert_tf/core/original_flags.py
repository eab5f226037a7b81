"""What replaces the flags of google-research/albert that do not exist here; docs/migrating.md shows all of its flags.

Every other flag of the original has its name here. The flags are those of commit 4ae12a2 and, for the programs that it
does not have, of the newest commit.
"""

_FEATURES = "features need no file; --feature_cache_dir keeps them for further runs"
_TPU_VM = "not needed: a program on a TPU VM finds its TPU by --tpu_name=local"
_NEW_NAME = {
    "albert_directory": "model",
    "albert_hub_module_handle": "init_checkpoint",
    "cached_dir": "feature_cache_dir",
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
    "checkpoint_name": "give the checkpoint's path in --model",
    "end_n_top": "always 5, the original's default",
    "gcp_project": _TPU_VM,
    "high_only": "use --level=high",
    "input_file_mode": "not needed: text is read as UTF-8; see --invalid_utf8",
    "masked_lm_budget": "the released code does not use it; records of --masking=dynamic are masked while training",
    "master": _TPU_VM,
    "middle_only": "use --level=middle",
    "num_tpu_cores": "not needed: all cores are used",
    "predict_feature_file": _FEATURES,
    "predict_feature_left_file": _FEATURES,
    "start_n_top": "always 5, the original's default",
    "tpu_zone": _TPU_VM,
    "train_feature_file": _FEATURES,
    "use_einsum": "not needed: every export converts to TFLite (--format=tflite)",
}


def replacement(name: str) -> str:
    """What to use instead of a flag of the original; "" if it is no such flag, or has the same name here."""
    if name in _NEW_NAME:
        return f"--{_NEW_NAME[name]} replaces it"
    return _EXPLANATIONS.get(name, "")
