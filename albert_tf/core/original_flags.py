"""The flags of google-research/albert that do not exist here, and their replacements (docs/migrating.md has all flags).

The flags are those of commit 4ae12a2, and of the newest commit for programs that this one does not have.
"""

_FEATURES = "features need no file"
_TPU_VM = "not needed: a program on a TPU VM finds its TPU by --tpu_name=local"
_LABELS = "not needed: the labels are those of the training data"
_OF_LOOP = "not needed: the number of steps on the device follows their time"
_RACE_FILE = "not needed: RACE is read from --data_dir"
REPLACEMENTS = {
    "albert_directory": "--model replaces it",
    "albert_hub_module_handle": "--init_checkpoint replaces it",
    "cached_dir": _FEATURES,
    "checkpoint_name": "give the checkpoint's path in --model",
    "do_permutation": "not available",
    "dropout_prob": "--classifier_dropout_prob replaces it",
    "end_n_top": "always 5, the original's default",
    "eval_file": _RACE_FILE,
    "export_dir": "albert-tf export RUN --output_dir=FOLDER exports a finished run",
    "export_path": "--output_dir replaces it",
    "gcp_project": _TPU_VM,
    "high_only": "use --level=high",
    "init_from_group0": "--warm_start_from_shallower replaces it",
    "input_file_mode": "not needed: text is read as UTF-8; see --invalid_utf8",
    "iterations_per_loop": _OF_LOOP,
    "keep_checkpoint_max": "the newest and the best checkpoint are kept",
    "masked_lm_budget": "the released code does not use it; records of --masking=dynamic are masked while training",
    "master": _TPU_VM,
    "middle_only": "use --level=middle",
    "num_keep_checkpoint": "the newest and the best checkpoint are kept",
    "num_classes": _LABELS,
    "num_labels": _LABELS,
    "num_tpu_cores": "not needed: all cores are used",
    "output_file": "--output_dir replaces it",
    "parallel": "--num_workers replaces it",
    "predict_batch_size": "--eval_batch_size replaces it",
    "predict_feature_file": _FEATURES,
    "predict_feature_left_file": _FEATURES,
    "predict_file": _RACE_FILE,
    "random_next_sentence": "use --sentence_task=nsp",
    "start_n_top": "always 5, the original's default",
    "start_warmup_step": "not needed: the warm-up starts at step 0",
    "task_name": "not needed here",
    "threshold_to_export": "exports return probabilities: compare them with your threshold",
    "tpu_zone": _TPU_VM,
    "train_feature_file": _FEATURES,
    "train_file": _RACE_FILE,
    "train_step": "--num_train_steps replaces it",
    "use_einsum": "not needed: every export converts to TFLite (--format=tflite)",
    "use_tpu": "--tpu_name replaces it",
    "warmup_step": "--num_warmup_steps replaces it",
}

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
