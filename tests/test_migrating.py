"""docs/guides/migrating.md explains every flag of google-research/albert, and each has a replacement."""

import re

import numpy as np
import pytest

from albert_tf import AlbertForPreTraining, Tokenizer, save_pretrained
from albert_tf.core import original_flags
from tests.helpers import ROOT, TINY, run_script
from tests.text.texts import write_vocabulary

PRETRAINING = "run_pretraining.py"
RACE = "run_race.py"
# The flags of the original's programs, and our program for each.
ORIGINAL = {
    "-m data_prep.create_pretraining_data": """
        input_file output_file vocab_file spm_model_file input_file_mode do_lower_case do_whole_word_mask
        do_permutation favor_shorter_ngram random_next_sentence max_seq_length ngram max_predictions_per_seq
        random_seed dupe_factor masked_lm_prob short_seq_prob parallel""",
    PRETRAINING: """
        albert_config_file input_file output_dir init_checkpoint max_seq_length max_predictions_per_seq do_train
        do_eval train_batch_size eval_batch_size optimizer learning_rate poly_power num_train_steps num_warmup_steps
        start_warmup_step save_checkpoints_steps keep_checkpoint_max iterations_per_loop max_eval_steps use_tpu
        init_from_group0 tpu_name tpu_zone gcp_project master num_tpu_cores masked_lm_budget""",
    "run_classifier.py": """
        data_dir albert_config_file task_name vocab_file spm_model_file output_dir cached_dir init_checkpoint
        albert_hub_module_handle do_lower_case max_seq_length do_train do_eval do_predict train_batch_size
        eval_batch_size predict_batch_size learning_rate train_step warmup_step save_checkpoints_steps
        keep_checkpoint_max iterations_per_loop use_tpu optimizer tpu_name tpu_zone gcp_project master
        num_tpu_cores export_dir threshold_to_export""",
    "run_squad.py": """
        albert_config_file vocab_file spm_model_file output_dir train_file predict_file train_feature_file
        predict_feature_file predict_feature_left_file init_checkpoint albert_hub_module_handle do_lower_case
        max_seq_length doc_stride max_query_length do_train do_predict train_batch_size predict_batch_size
        learning_rate num_train_epochs warmup_proportion save_checkpoints_steps iterations_per_loop n_best_size
        max_answer_length use_tpu tpu_name tpu_zone gcp_project master num_tpu_cores start_n_top end_n_top
        dropout_prob export_dir""",
    RACE: """
        data_dir albert_config_file vocab_file spm_model_file output_dir init_checkpoint albert_hub_module_handle
        task_name train_file eval_file predict_file
        do_lower_case dropout_prob max_seq_length max_qa_length num_keep_checkpoint high_only middle_only do_train
        do_eval do_predict train_batch_size eval_batch_size predict_batch_size learning_rate train_step warmup_step
        save_checkpoints_steps iterations_per_loop use_tpu tpu_name tpu_zone gcp_project master num_tpu_cores""",
    "-m albert_tf.command export": "albert_directory checkpoint_name do_lower_case use_einsum export_path",
}


@pytest.mark.slow
@pytest.mark.parametrize("program", ORIGINAL)
def test_every_flag_of_the_original_exists_or_has_a_replacement_that_does(program):
    text = run_script(program, "--help").stdout
    known = set(re.findall(r"^  --(?:\[no\])?(\w+)", text, re.MULTILINE))
    for name in {*ORIGINAL[program].split()} - known:
        new_names = re.findall(r"^--(\w+) replaces it", original_flags.REPLACEMENTS[name])
        assert known.issuperset(new_names), f"{program} has no {new_names}"


def test_the_guide_lists_every_flag_of_the_original():
    text = (ROOT / "docs" / "guides" / "migrating.md").read_text()
    for name in {name for names in ORIGINAL.values() for name in names.split()}:
        assert f"`{name}`" in text, name


def test_the_code_for_models_of_transformers_runs(tmp_path):
    """With a small model of a BERT's shape and its WordPiece vocabulary."""
    vocabulary = write_vocabulary(tmp_path / "vocab.txt")
    size = Tokenizer.from_file(vocabulary).vocab_size
    shape = {"embedding_size": TINY.hidden_size, "share_parameters": "none", "vocab_size": size}
    model = AlbertForPreTraining(TINY.replace(**shape), seed=3)
    save_pretrained(model, tmp_path / "model", spm_model_file=vocabulary)
    page = (ROOT / "docs" / "guides" / "migrating.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    values: dict = {}
    exec(re.sub(r'"hf:google-bert.*?"', repr(str(tmp_path / "model")), code), values)
    expected = model(values["tokenizer"](values["texts"]))["sequence_output"]
    np.testing.assert_allclose(values["hidden"], expected, atol=1e-6)
    assert len(values["model"].config.labels) == 2
