"""The threshold of null odds belongs to the weights that it was chosen for."""

import json

from tests.helpers import make_task


def test_training_without_evaluation_does_not_keep_the_old_models_threshold(
    finished, task_flags, tmp_path
):
    model = finished("squad2.0").folder / "model"
    (tmp_path / "old").mkdir()
    for path in (model / name for name in ("config.json", "model.safetensors", "spiece.model")):
        (tmp_path / "old" / path.name).write_bytes(path.read_bytes())
    config = json.loads((model / "config.json").read_text())
    config["albert_tf"]["task"]["null_threshold"] = -3.5
    (tmp_path / "old" / "config.json").write_text(json.dumps(config))
    runner, flags = task_flags["squad2.0"]
    flags = [*flags, f"--init_checkpoint={tmp_path / 'old'}", f"--output_dir={tmp_path / 'new'}"]
    used = make_task(runner, *flags, "--do_train=false", "--do_predict")
    assert used.task_settings()["null_threshold"] == -3.5
    trained = make_task(runner, *flags, "--do_eval=false")
    assert trained.task_settings()["null_threshold"] == 0
