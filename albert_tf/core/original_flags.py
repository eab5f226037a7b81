"""The flags of google-research/albert that do not exist here, and their replacements.

docs/guides/migrating.md has all flags. Those here are of commit 4ae12a2, and of the newest commit for programs that
this one does not have.
"""

from collections.abc import Container, Mapping, Sequence

from albert_tf.core.removed_settings import REMOVED

FALSE_WORDS = ("false", "f", "no", "n", "0")
REPLACEMENTS = {
    "albert_directory": "--model replaces it",
    "albert_hub_module_handle": "--init_checkpoint replaces it",
    "checkpoint_name": "give the checkpoint's path in --model",
    "do_permutation": "not available",
    "dropout_prob": "--classifier_dropout_prob replaces it",
    "export_dir": "albert-tf export RUN --output_dir=FOLDER exports a finished run",
    "export_path": "--output_dir replaces it",
    "high_only": "use --level=high",
    "init_from_group0": "--warm_start_from_shallower replaces it",
    "input_file_mode": "not needed: text is read as UTF-8; see --invalid_utf8",
    "iterations_per_loop": "not needed: the number of steps on the device follows their time",
    "masked_lm_budget": "the released code does not use it; records of --masking=dynamic are masked while training",
    "middle_only": "use --level=middle",
    "num_tpu_cores": "not needed: all cores are used",
    "output_file": "--output_dir replaces it",
    "parallel": "--num_workers replaces it",
    "predict_batch_size": "--eval_batch_size replaces it",
    "random_next_sentence": "use --sentence_task=nsp",
    "start_warmup_step": "not needed: the warm-up starts at step 0",
    "task_name": "not needed here",
    "threshold_to_export": "exports return probabilities: compare them with your threshold",
    "train_step": "--num_train_steps replaces it",
    "use_einsum": "not needed: every export converts to TFLite (--format=tflite)",
    "use_tpu": "--tpu_name replaces it",
    "warmup_step": "--num_warmup_steps replaces it",
}
_OF_SEVERAL = {
    "features need no file": "cached_dir predict_feature_file predict_feature_left_file train_feature_file",
    "not needed: RACE is read from --data_dir": "eval_file predict_file train_file",
    "not needed: a program on a TPU VM finds its TPU by --tpu_name=local": "gcp_project master tpu_zone",
    "not needed: the labels are those of the training data": "num_classes num_labels",
    "the newest and the best checkpoint are kept": "keep_checkpoint_max num_keep_checkpoint",
    "always 5, the original's default": "end_n_top start_n_top",
}
REPLACEMENTS |= {name: why for why, names in _OF_SEVERAL.items() for name in names.split()}

# Flags whose absence changes nothing -> the values for which this is so; empty allows all. Commands of the original's
# README contain them.
HARMLESS: Mapping[str, tuple[str, ...]] = {
    "cached_dir": (),
    "do_permutation": FALSE_WORDS,
    "gcp_project": (),
    "input_file_mode": (),
    "iterations_per_loop": (),
    "keep_checkpoint_max": (),
    "master": (),
    "masked_lm_budget": ("0",),
    "num_keep_checkpoint": (),
    "num_tpu_cores": (),
    "predict_feature_file": (),
    "predict_feature_left_file": (),
    "random_next_sentence": FALSE_WORDS,
    "start_warmup_step": ("0",),
    "tpu_zone": (),
    "train_feature_file": (),
    "use_einsum": (),
    "use_tpu": FALSE_WORDS,
}
# Of these, truth values, which have no word of their own after the flag.
_TRUTH_VALUES = ("do_permutation", "random_next_sentence", "use_einsum", "use_tpu")

# What people of other libraries type -> the flag of some program that they mean.
MEANT = {
    "batch_size": "train_batch_size",
    "bf16": "mixed_precision=mixed_bfloat16",
    "checkpoint": "init_checkpoint",
    "epochs": "num_train_epochs",
    "eval_steps": "eval_every_steps",
    "fp16": "mixed_precision=mixed_float16",
    "gradient_checkpointing": "recompute_activations",
    "logging_steps": "log_every_steps",
    "lr": "learning_rate",
    "max_length": "max_seq_length",
    "max_steps": "num_train_steps",
    "model_name": "init_checkpoint",
    "model_name_or_path": "init_checkpoint",
    "num_epochs": "num_train_epochs",
    "per_device_eval_batch_size": "eval_batch_size",
    "per_device_train_batch_size": "train_batch_size",
    "pretrained_model_name_or_path": "init_checkpoint",
    "save_steps": "save_checkpoints_steps",
    "test_file": "predict_file",
    "tokenizer_name": "spm_model_file",
    "validation_file": "eval_file",
    "weight_decay": "weight_decay_rate",
    "warmup_ratio": "warmup_proportion",
    "warmup_steps": "num_warmup_steps",
}


def advice_about(name: str, flags: Container[str]) -> str:
    """What replaces a flag that a program does not have: one of the original, of others or of the past; or "".

    Args:
      name: the flag without dashes before it, as it was written.
      flags: the flags of the program.
    """
    # "max-steps" -> "max_steps", and "nouse_tpu" -> "use_tpu"
    key = name.replace("-", "_").removeprefix("no")
    meant = key if key in flags else MEANT.get(key, "")
    if meant.partition("=")[0] in flags:
        return f"--{meant} is meant"
    if key in REMOVED:
        return REMOVED[key].advice
    return REPLACEMENTS.get(name) or REPLACEMENTS.get(key, "")


def without_harmless(words: Sequence[str], flags: Container[str]) -> tuple[list[str], list[str]]:
    """The words of a command line without flags of the original whose absence changes nothing, and a note on each.

    Args:
      flags: the flags of the program, which stay.
    """
    kept: list[str] = []
    notes = []
    position = 0
    while position < len(words):
        word = words[position]
        name, value, num_words = _flag_and_value(words, position)
        position += num_words
        harmless_values = HARMLESS.get(name)
        is_harmless = False
        if harmless_values is not None:
            is_harmless = not harmless_values or value.lower() in harmless_values
        if is_harmless and name not in flags:
            notes.append(f"{word} has no effect here ({advice_about(name, flags)})")
        else:
            kept += words[position - num_words : position]
    return kept, notes


def _flag_and_value(words: Sequence[str], position: int) -> tuple[str, str, int]:
    """The name of a flag, its value and the number of its words; "" and one word if it is none that may be harmless.

    Example: --nouse_tpu is ("use_tpu", "false", 1), and --master x is ("master", "x", 2).
    """
    word = words[position]
    if not word.startswith("-"):
        return "", "", 1
    name, has_value, value = word.lstrip("-").partition("=")
    if has_value:
        return name, value, 1
    if name.removeprefix("no") in _TRUTH_VALUES:
        is_false = name not in _TRUTH_VALUES
        return name.removeprefix("no"), "false" if is_false else "true", 1
    follows = position + 1 < len(words) and not words[position + 1].startswith("-")
    if name in HARMLESS and follows:
        return name, words[position + 1], 2
    return name, "", 1
