"""The threshold of null odds belongs to the weights that it was chosen for."""

from albert_tf import load_pretrained, save_pretrained
from albert_tf.model.heads import AlbertForSpanOrNone
from tests.helpers import make_task


def test_training_without_evaluation_does_not_keep_the_old_models_threshold(
    tiny_pretrained, task_flags, tmp_path
):
    config = load_pretrained(tiny_pretrained).config.with_labels(("start", "end"), "squad2.0")
    spm = tiny_pretrained / "spiece.model"
    settings = {"null_threshold": -3.5}
    save_pretrained(AlbertForSpanOrNone(config), tmp_path, spm_model_file=spm, task=settings)
    runner, flags = task_flags["squad2.0"]
    flags = [*flags, f"--init_checkpoint={tmp_path}"]
    used = make_task(runner, *flags, "--do_train=false", "--do_predict")
    assert used.task_settings()["null_threshold"] == -3.5
    trained = make_task(runner, *flags, "--do_eval=false")
    assert trained.task_settings()["null_threshold"] == 0
