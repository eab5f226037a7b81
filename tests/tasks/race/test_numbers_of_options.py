"""Data in the layout of RACE with other numbers of options, which may differ from question to question."""

import json

import numpy as np
import pytest

from albert_tf import UserError, load_predictor
from albert_tf.export import export_model
from albert_tf.tasks.race import passages
from tests import helpers

# Of each split, the numbers of options of the questions of a passage.
NUMBERS = {"train": (3, 5, 4, 3, 5, 2), "dev": (3, 4, 5, 3), "test": (3, 6, 2, 4)}


@pytest.fixture(scope="module")
def flags(task_flags, tmp_path_factory):
    """Flags of a short run on questions with two to six options."""
    folder = tmp_path_factory.mktemp("options")
    rng = np.random.default_rng(3)
    for split, numbers in NUMBERS.items():
        passage = {
            "id": "x",
            "article": helpers.sentence(rng, 9, 20),
            "questions": [helpers.sentence(rng, 3, 6) for _ in numbers],
            "options": [[helpers.sentence(rng, 1, 6) for _ in range(n)] for n in numbers],
            "answers": [passages.LETTERS[n - 1] for n in numbers],
        }
        helpers.write_files(folder / "data", {f"{split}/high/0.txt": json.dumps(passage)})
    runner, common = task_flags["race"]
    own_flags = [f"--data_dir={folder / 'data'}", "--num_train_steps=2", "--eval_every_steps=2"]
    return runner, [*common, *own_flags, "--learning_rate=1e-4"], folder


def test_padded_places_change_no_loss_and_are_never_chosen(flags):
    runner, common, folder = flags
    task = helpers.make_task(runner, *common, "--do_predict", f"--output_dir={folder / 'unused'}")
    assert task.model_config.labels == tuple("ABCDE")  # of the training data
    assert {split: table.choices for split, table in task.tables.items()} == {
        "train": 5,
        "eval": 5,
        "predict": 6,
    }
    model = helpers.noisy(task.build_model(dtype="float32", recompute_activations=False, seed=1))
    features = helpers.batch_of(task, "train", range(6))
    outputs = model(features)
    # The same questions, one by one, without places that have no option.
    losses = []
    for number, question in enumerate(task.items["train"]):
        of_options = {
            name: values[number : number + 1, : len(question.options)]
            for name, values in features.items()
            if name in ("input_ids", "input_mask", "segment_ids")
        }
        logits = model(of_options)["logits"].numpy()[0].astype(np.float64)
        losses.append(np.log(np.exp(logits).sum()) - logits[question.answer])
    loss = task.losses(outputs, features, training=True)["label_loss"]
    assert float(loss.sum / loss.count) == pytest.approx(np.mean(losses), rel=1e-5)

    # Places without an option are never chosen, however high the score of [CLS] alone is.
    is_padding = np.array([[place >= n for place in range(5)] for n in NUMBERS["train"]])
    high = {"logits": np.where(is_padding, 50.0, outputs["logits"]).astype(np.float32)}
    found = task.predictions(high, features)["probabilities"].numpy()
    assert (found[is_padding] == 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.slow
def test_a_run_trains_evaluates_predicts_and_is_exported(flags, tmp_path):
    runner, common, folder = flags
    run = tmp_path / "run"
    with helpers.eagerly():
        results = helpers.fine_tune_here(
            runner,
            *common,
            "--do_predict",
            f"--predictions_file={run}-answers.jsonl",
            f"--output_dir={run}",
        )
    assert 0 <= results["eval"]["accuracy"] <= 1
    answers = helpers.lines(tmp_path / "run-answers.jsonl")
    assert [len(answer["probabilities"]) for answer in answers] == list(NUMBERS["test"])
    report = (run / "predictions" / "eval_errors.txt").read_text()
    assert report.startswith("true \\ predicted")

    passage = json.loads((folder / "data" / "test" / "high" / "0.txt").read_text())
    rows = zip(passage["questions"], passage["options"], strict=True)
    items = [{"article": passage["article"], "question": q, "options": o} for q, o in rows]
    export_model(str(run / "model"), str(tmp_path / "onnx"), format="onnx")
    for model in (run, tmp_path / "onnx"):
        predictor = load_predictor(model)
        for answer, expected in zip(predictor.predict(items), answers, strict=True):
            assert answer["answer"] == expected["answer"]
            assert answer["probabilities"] == pytest.approx(expected["probabilities"], abs=1e-5)
        assert predictor.predict(items[:1])[0]["answer"] in "ABC"
        with pytest.raises(UserError, match="expected .*two or more texts"):
            predictor.predict([{**items[0], "options": ["one"]}])
