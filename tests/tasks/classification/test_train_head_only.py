"""--train_head_only and --classifier_pooling: from files to answers, what stays, and what is an error."""

import json
import pathlib
import shutil

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression, Ridge

from albert_tf import load_predictor, load_pretrained, save_pretrained
from albert_tf.formats.pretrained import read_weights
from albert_tf.model.heads import AlbertForEmbedding
from albert_tf.tasks.classification import linear_models, multi_label
from albert_tf.training import checkpoints
from tests.helpers import error_of, fine_tune_here, fine_tuning_settings, lines

pytestmark = [
    pytest.mark.usefixtures("eagerly"),
    pytest.mark.filterwarnings("ignore:.*run_functions_eagerly.*:UserWarning"),
]

STRENGTH = 300.0  # the vectors of random weights are much alike
HOW = {"pooling": "mean+cls", "projection_size": 7, "normalize": True}
OF_STEPS = ("--train_batch_size", "--num_train_steps", "--eval_every_steps")
OF_STEPS += ("--save_checkpoints_steps", "--learning_rate", "--log_every_steps")

FEW_STEPS = ("--num_train_steps=2", "--eval_every_steps=2", "--save_checkpoints_steps=2")


@pytest.fixture(scope="module")
def embedder(tiny_pretrained, tmp_path_factory) -> pathlib.Path:
    """An embedding model with two poolings, a projection and vectors of length 1."""
    pretrained = load_pretrained(tiny_pretrained)
    config = pretrained.config.replace(foreign={"sentence_embedding": HOW})
    model = AlbertForEmbedding(config, seed=4)
    variables = model.named_variables()
    for name, variable in pretrained.encoder.named_variables().items():
        variables[name].assign(variable)
    folder = tmp_path_factory.mktemp("embedder") / "model"
    vocabulary = tiny_pretrained / "spiece.model"
    save_pretrained(model, folder, spm_model_file=vocabulary, task={"max_seq_length": 33, **HOW})
    return folder


@pytest.fixture(scope="module")
def flags_of(task_flags):
    """A function that gives the flags of a task for a head alone, without those of steps."""

    def flags(task: str, model: pathlib.Path) -> list[str]:
        _, given = task_flags[task]
        of_head = [flag for flag in given if not flag.startswith((*OF_STEPS, "--init_checkpoint"))]
        head_only = ["--train_head_only", f"--inverse_regularization={STRENGTH}"]
        return [*of_head, *head_only, f"--init_checkpoint={model}"]

    return flags


@pytest.fixture(scope="module")
def trained(flags_of, embedder, tmp_path_factory):
    """A function that gives the folder of a task's finished run and its results; change nothing in it."""
    done = {}

    def run(task: str) -> tuple[pathlib.Path, dict]:
        if task not in done:
            folder = tmp_path_factory.mktemp(task) / "run"
            flags = [*flags_of(task, embedder), "--do_predict", f"--output_dir={folder}"]
            done[task] = folder, fine_tune_here("classifier", *flags)
        return done[task]

    return run


def texts_and_answers(path: pathlib.Path, column: str, answer: str) -> tuple[list, list]:
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    names = rows[0]
    return (
        [row[names.index(column)] for row in rows[1:]],
        [row[names.index(answer)] for row in rows[1:]],
    )


def test_probabilities_are_those_of_scikit_learn_on_the_vectors_of_the_embedder(
    trained, embedder, task_files
):
    folder, results = trained("tsv")
    vectors_of = load_predictor(embedder, max_seq_length=33).embed
    texts, moods = texts_and_answers(task_files / "tsv/train.tsv", "review", "mood")
    head = LogisticRegression(C=STRENGTH, tol=1e-10, max_iter=10_000)
    head.fit(vectors_of(texts).astype(np.float64), moods)
    texts, moods = texts_and_answers(task_files / "tsv/dev.tsv", "review", "mood")
    expected = head.predict_proba(vectors_of(texts))

    for engine in ("tensorflow", "onnxruntime"):
        answers = load_predictor(folder, engine=engine).predict(texts)
        found = [list(answer["probabilities"].values()) for answer in answers]
        assert list(answers[0]["probabilities"]) == list(head.classes_)
        np.testing.assert_allclose(found, expected, atol=1e-4)
    assert np.ptp(expected, axis=0).min() > 0.1  # texts get different answers

    accuracy = np.mean(head.classes_[expected.argmax(axis=1)] == np.array(moods))
    assert results["eval"]["accuracy"] == pytest.approx(accuracy)
    assert (results["step"], results["best"]["step"]) == (1, 1)
    assert len((folder / "predictions/predictions.tsv").read_text().splitlines()) == 1 + 7
    (line,) = lines(folder / "metrics.jsonl")
    assert line["step"] == 1 and 0 < line["loss"] < np.log(3)


def test_scores_are_those_of_ridge(trained, embedder, task_files):
    folder, _ = trained("stsb")
    rows = [
        row.split("\t")
        for row in (task_files / "glue/STS-B/train.tsv").read_text().split("\n")[1:-1]
    ]
    pairs = [{"text_a": row[7], "text_b": row[8]} for row in rows]
    scores = np.array([float(row[9]) for row in rows])
    model = load_pretrained(folder)
    predictor = load_predictor(folder, engine="tensorflow")
    table = predictor.table([predictor.check(pair) for pair in pairs])
    batch = table.batch(
        np.arange(len(rows)), int(table.lengths.max()), ["input_ids", "segment_ids"]
    )
    vectors = model.vectors(batch).numpy().astype(np.float64)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    expected = Ridge(alpha=1 / STRENGTH).fit(vectors, scores).predict(vectors)
    found = [answer["score"] for answer in predictor.predict(pairs)]
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_several_labels_have_their_weights(trained, embedder, task_files):
    folder, _ = trained("labels")
    texts, topics = texts_and_answers(task_files / "labels/train.tsv", "review", "topics")
    predictor = load_predictor(folder)
    labels = predictor.model.config.labels
    names_of_rows = [{name.strip() for name in cell.split(";")} for cell in topics]
    truths = np.array([[int(label in names) for label in labels] for names in names_of_rows])
    weights = multi_label.balanced_weights(truths, len(labels), is_multi_label=True)
    vectors = load_predictor(embedder, max_seq_length=23).embed(texts)
    fitted = linear_models.fit_label_sets(vectors, truths, STRENGTH, weights)
    expected = expit(vectors @ fitted.weights.T + fitted.bias)
    found = [list(answer["probabilities"].values()) for answer in predictor.predict(texts)]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    plain = linear_models.fit_label_sets(vectors, truths, STRENGTH)
    assert np.abs(expit(vectors @ plain.weights.T + plain.bias) - expected).max() > 0.05


def test_the_weights_of_labels_count(flags_of, embedder, trained, tmp_path, capsys):
    flags = [*flags_of("tsv", embedder), "--class_weights=balanced", f"--output_dir={tmp_path}/run"]
    fine_tune_here("classifier", *flags)
    assert "class weights" in capsys.readouterr().out
    plain = read_weights(trained("tsv")[0]).arrays["output_weights"]
    weighted = read_weights(tmp_path / "run").arrays["output_weights"]
    assert np.abs(plain - weighted).max() > 0.01


def test_the_encoder_and_the_projection_do_not_change(trained, embedder):
    before = read_weights(embedder).arrays
    after = read_weights(trained("tsv")[0]).arrays
    kept = [name for name in before if "pooler" not in name]
    assert "embedding/projection/kernel" in kept and len(kept) > 20
    for name in kept:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)


def test_the_same_command_reads_what_is_there(trained, flags_of, embedder, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    shutil.copytree(trained("tsv")[0], folder)
    monkeypatch.setattr(linear_models, "fit_labels", None)  # would be an error
    before = read_weights(folder).arrays
    flags = [*flags_of("tsv", embedder), "--do_predict", f"--output_dir={folder}"]
    results = fine_tune_here("classifier", *flags)
    assert results["eval"] == trained("tsv")[1]["eval"]
    assert len(lines(folder / "eval_metrics.jsonl")) == len(lines(folder / "metrics.jsonl")) == 1
    for name, array in read_weights(folder).arrays.items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)
    # Nor does an evaluation alone train, and it needs no flags of the training.
    data = [flag for flag in flags_of("tsv", embedder) if "eval_file" in flag]
    again = fine_tune_here("classifier", *data, "--nodo_train", f"--output_dir={folder}")
    assert again["eval"] == pytest.approx(results["eval"], abs=1e-6)  # other batches


def test_a_run_that_was_killed_before_its_checkpoint_begins_again(
    flags_of, embedder, trained, tmp_path, monkeypatch
):
    class KilledError(Exception):
        pass

    def killed(*_):
        raise KilledError

    flags = [*flags_of("tsv", embedder), "--do_predict", f"--output_dir={tmp_path}/run"]
    with monkeypatch.context() as patched:
        patched.setattr(checkpoints.Checkpoints, "save", killed)
        with pytest.raises(KilledError):
            fine_tune_here("classifier", *flags)
    assert len(lines(tmp_path / "run/metrics.jsonl")) == 1
    results = fine_tune_here("classifier", *flags)
    assert len(lines(tmp_path / "run/metrics.jsonl")) == 1
    folder, expected = trained("tsv")
    assert results["eval"] == expected["eval"]
    found = read_weights(tmp_path / "run").arrays
    for name, array in read_weights(folder).arrays.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_what_is_read_by_default(trained, flags_of, tiny_pretrained, task_flags, tmp_path):
    assert load_pretrained(trained("tsv")[0]).config.classifier_pooling == "embedding"
    # Of a model that is no embedder, the vector is the mean; the pooler can be named.
    for pooling, width in (("", 20), ("mean", 20), ("pooler", 20)):
        given = [f"--classifier_pooling={pooling}"] if pooling else []
        folder = tmp_path / (pooling or "default")
        flags = [*flags_of("tsv", tiny_pretrained), *given, f"--output_dir={folder}"]
        fine_tune_here("classifier", *flags)
        config = load_pretrained(folder).config
        assert config.classifier_pooling == (pooling or "embedding")
        assert config.classifier_width == width
    weights = [
        read_weights(tmp_path / name).arrays["output_weights"]
        for name in ("default", "mean", "pooler")
    ]
    np.testing.assert_array_equal(weights[0], weights[1])
    assert np.abs(weights[0] - weights[2]).max() > 0.01
    shapes = json.loads((tmp_path / "pooler/model/config.json").read_text())
    assert shapes["architectures"] == ["AlbertForSequenceClassification"]
    assert "classifier_pooling" not in shapes


@pytest.mark.slow
def test_fine_tuning_continues_with_the_vector_of_its_model(
    trained, task_flags, embedder, tmp_path
):
    folder, _ = trained("tsv")
    _, flags = task_flags["tsv"]
    flags = [flag for flag in flags if not flag.startswith("--init_checkpoint")]
    flags += FEW_STEPS
    start = [*flags, f"--init_checkpoint={folder}"]
    line = error_of(
        fine_tune_here,
        "classifier",
        *start,
        "--classifier_pooling=mean",
        f"--output_dir={tmp_path}/x",
    )
    assert "--classifier_pooling=mean" in line and "trained with embedding" in line

    fine_tune_here("classifier", *start, f"--output_dir={tmp_path}/run")
    after = read_weights(tmp_path / "run")
    before = read_weights(folder)
    assert after.config.classifier_pooling == "embedding"
    for name in (
        "output_weights",
        "embedding/projection/kernel",
        "bert/embeddings/word_embeddings",
    ):
        assert np.abs(after.arrays[name] - before.arrays[name]).max() > 1e-4, name
    # The newest checkpoint of a run is that of the same model.
    checkpoint = read_weights(tmp_path / "run/checkpoints/step-2")
    assert checkpoint.config.classifier_pooling == "embedding"
    assert checkpoint.arrays.keys() >= {"output_weights", "embedding/projection/kernel"}
    # An ordinary classifier of the embedder reads the pooler.
    settings = [*flags, f"--init_checkpoint={embedder}", f"--output_dir={tmp_path}/pooler"]
    fine_tune_here("classifier", *settings)
    assert read_weights(tmp_path / "pooler").config.classifier_pooling == "pooler"


def test_a_head_is_fitted_anew_on_a_classifier(trained, flags_of, tmp_path):
    folder, _ = trained("tsv")
    flags = [*flags_of("tsv", folder), f"--output_dir={tmp_path}/run"]
    fine_tune_here("classifier", *flags)
    found = read_weights(tmp_path / "run").arrays
    for name, array in read_weights(folder).arrays.items():
        np.testing.assert_allclose(found[name], array, atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_a_teacher_may_read_the_vector(trained, task_flags, tiny_pretrained, tmp_path):
    folder, _ = trained("tsv")
    _, flags = task_flags["tsv"]
    teacher = [f"--teacher={folder}", "--classifier_pooling=mean", f"--output_dir={tmp_path}/run"]
    fine_tune_here("classifier", *flags, *FEW_STEPS, *teacher)
    assert read_weights(tmp_path / "run").config.classifier_pooling == "mean"


@pytest.mark.parametrize(
    "flag",
    [
        "--learning_rate=0.01",
        "--num_train_steps=3",
        "--num_train_epochs=3",
        "--num_warmup_steps=2",
        "--optimizer=lamb",
        "--learning_rate_factors=encoder:0.5",
        "--train_batch_size=8",
        "--gradient_accumulation_steps=2",
        "--recompute_activations",
        "--eval_every_steps=5",
        "--save_checkpoints_steps=5",
        "--log_every_steps=5",
        "--early_stopping_patience=2",
        "--hidden_dropout_prob=0.1",
        "--attention_probs_dropout_prob=0.1",
        "--seed=3",
        "--num_runs=2",
        "--teacher_temperature=3",
    ],
)
def test_flags_without_effect_are_errors(flag, flags_of, tiny_pretrained):
    flags = [*flags_of("tsv", tiny_pretrained), flag, "--output_dir=unused"]
    line = error_of(fine_tuning_settings, "classifier", *flags)
    name = flag.partition("=")[0]
    assert f"{name} has no effect with --train_head_only" in line


def test_flags_that_do_not_belong_together(flags_of, tiny_pretrained, tmp_path):
    flags = [*flags_of("tsv", tiny_pretrained), f"--output_dir={tmp_path}"]
    line = error_of(fine_tuning_settings, "classifier", *flags, "--nodo_train")
    assert "--train_head_only needs --do_train" in line
    mrpc = [*flags_of("mrpc", tiny_pretrained), f"--output_dir={tmp_path}", "--preset=paper"]
    assert "--preset has no effect" in error_of(fine_tuning_settings, "classifier", *mrpc)
    without = [flag for flag in flags if flag != "--train_head_only"]
    line = error_of(fine_tuning_settings, "classifier", *without)
    assert "--inverse_regularization needs --train_head_only" in line
    without = [flag for flag in flags if not flag.startswith("--init_checkpoint")]
    random = ["--model=albert-base-v2", f"--spm_model_file={tiny_pretrained / 'spiece.model'}"]
    line = error_of(fine_tuning_settings, "classifier", *without, *random)
    assert "--train_head_only needs --init_checkpoint" in line


def test_a_pooler_without_values_is_not_read(flags_of, tiny_pretrained, tmp_path):
    model = load_pretrained(tiny_pretrained)
    pooler = [name for name in model.named_variables() if "pooler" in name]
    folder = tmp_path / "model"
    vocabulary = tiny_pretrained / "spiece.model"
    save_pretrained(model, folder, spm_model_file=vocabulary, untrained=pooler)
    flags = [*flags_of("tsv", folder), "--classifier_pooling=pooler", f"--output_dir={tmp_path}/r"]
    line = error_of(fine_tune_here, "classifier", *flags)
    assert "--classifier_pooling=pooler: the model has no trained pooler" in line


def test_another_way_to_make_vectors_is_an_error(flags_of, embedder, tmp_path):
    config = read_weights(embedder).config
    sizes = tmp_path / "albert_config.json"
    sizes.write_text(config.replace(foreign={}).to_json_string())
    flags = [*flags_of("tsv", embedder), f"--albert_config_file={sizes}"]
    line = error_of(fine_tune_here, "classifier", *flags, f"--output_dir={tmp_path}/run")
    assert "--albert_config_file says another way to make vectors" in line


def test_windows_are_examples_of_the_head(flags_of, embedder, tmp_path, capsys):
    flags = [*flags_of("tsv", embedder), "--windows", "--max_seq_length=13"]
    fine_tune_here("classifier", *flags, f"--output_dir={tmp_path}/run")
    predictor = load_predictor(tmp_path / "run")
    (table,) = [line for line in capsys.readouterr().out.splitlines() if "train: 23 texts" in line]
    assert "read in windows of --max_seq_length=13" in table
    (line,) = lines(tmp_path / "run/metrics.jsonl")
    # The answer for a text is the mean of those for its windows.
    text = "good cat saw the bad dog near a red river " * 2
    (answer,) = predictor.predict([text])
    first = load_predictor(tmp_path / "run")
    first.read_in_windows(False)
    with pytest.warns(UserWarning, match="cut at"):
        (cut,) = first.predict([text])
    assert answer["probabilities"] != cut["probabilities"] and line["loss"] > 0
