"""BERTs in transformers, both ways: the outputs of each class; skipped without torch and transformers (make peers)."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.formats import pretrained
from albert_tf.model import heads
from albert_tf.text.tokenizer import Tokenizer
from tests.formats.test_bert import CONFIG
from tests.helpers import WORDS, fine_tune_here, lines, make_task

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

LABELED = CONFIG.with_labels(["yes", "no", "perhaps"], "tsv")
# Our class -> theirs, and our outputs -> theirs.
CLASSES = {
    "AlbertForPreTraining": (
        "BertForPreTraining",
        {
            "sentence_order_logits": "seq_relationship_logits",
            "masked_lm_logits": "prediction_logits",
        },
    ),
    "AlbertForSequenceClassification": ("BertForSequenceClassification", {"logits": "logits"}),
    "AlbertForTokenClassification": ("BertForTokenClassification", {"logits": "logits"}),
    "AlbertForSpan": (
        "BertForQuestionAnswering",
        {"start_logits": "start_logits", "end_logits": "end_logits"},
    ),
    "AlbertForMultipleChoice": ("BertForMultipleChoice", {"logits": "logits"}),
}


def _features(name):
    ids = np.random.default_rng(0).integers(5, 30, (2, 7)).astype(np.int32)
    mask = (np.arange(7) < np.array([[7], [5]])).astype(np.int32)
    features = {"input_ids": ids, "input_mask": mask, "segment_ids": (np.arange(7) > 3) * mask}
    if name == "AlbertForMultipleChoice":
        return {key: value[None] for key, value in features.items()}
    return features


def _theirs(model, features):
    names = {
        "input_ids": "input_ids",
        "input_mask": "attention_mask",
        "segment_ids": "token_type_ids",
    }
    inputs = {names[key]: torch.tensor(value).long() for key, value in features.items()}
    with torch.no_grad():
        return {key: value.numpy() for key, value in model.eval()(**inputs).items()}


def _ours(model, name, features):
    if name == "AlbertForPreTraining":
        positions = np.tile(np.arange(7, dtype=np.int32), (2, 1))
        features = {**features, "masked_lm_positions": positions}
    return {key: np.asarray(value) for key, value in model(features).items() if key != "all_layers"}


def _assert_equal(name, ours, theirs, mask):
    for own, other in CLASSES[name][1].items():
        expected = theirs[other]
        found = ours[own].reshape(theirs[other].shape)
        if expected.shape[:2] == mask.shape:  # outputs of padding mean nothing
            expected = expected[mask == 1]
            found = found[mask == 1]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6, err_msg=own)


@pytest.mark.parametrize("name", CLASSES)
def test_each_class_opens_in_transformers_and_comes_back(name, tmp_path):
    has_labels = name in ("AlbertForSequenceClassification", "AlbertForTokenClassification")
    model = heads.MODEL_CLASSES[name](LABELED if has_labels else CONFIG, seed=4)
    for index, variable in enumerate(model.trainable_variables):
        noise = np.random.default_rng(index).normal(0, 0.1, variable.shape)
        variable.assign_add(noise.astype(np.float32))
    features = _features(name)
    pretrained.save_pretrained(model, tmp_path / "ours")
    cls = getattr(transformers, CLASSES[name][0])
    opened, report = cls.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    theirs = _theirs(opened, features)
    _assert_equal(name, _ours(model, name, features), theirs, features["input_mask"])
    opened.save_pretrained(tmp_path / "theirs")
    again = pretrained.load_pretrained(tmp_path / "theirs")
    _assert_equal(name, _ours(again, name, features), theirs, features["input_mask"])


@pytest.mark.parametrize("cls", ["BertModel", "BertForMaskedLM"])
def test_their_encoders_are_read(cls, tmp_path):
    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
    sizes += ("intermediate_size", "max_position_embeddings")
    config = transformers.BertConfig(**{name: getattr(CONFIG, name) for name in sizes})
    model = getattr(transformers, cls)(config)
    model.save_pretrained(tmp_path)
    features = _features(cls)
    ours = pretrained.load_pretrained(tmp_path)
    is_token = features["input_mask"] == 1
    theirs = _theirs(model, features)
    key = "last_hidden_state" if cls == "BertModel" else "logits"
    expected = ours.encoder(features)["sequence_output"].numpy()
    if cls == "BertForMaskedLM":
        expected = _ours(ours, "AlbertForPreTraining", features)["masked_lm_logits"]
    found = theirs[key]
    np.testing.assert_allclose(
        expected.reshape(found.shape)[is_token], found[is_token], rtol=0, atol=1e-6
    )
    assert ours.config.sentence_task == "nsp"


def _trained_there(model, batches, label, rates):
    """The losses and the norms of the gradients of a training in PyTorch."""
    decayed = {True: [], False: []}
    for name, parameter in model.train().named_parameters():
        decayed[not name.endswith(("bias", "LayerNorm.weight"))].append(parameter)
    groups = [{"params": decayed[key], "weight_decay": 0.01 * key} for key in decayed]
    optimizer = torch.optim.AdamW(groups, eps=1e-6)
    found = []
    for batch, rate in zip(batches, rates, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate
        labels = torch.tensor(batch[label][:, 0].numpy())
        inputs = {
            "input_ids": torch.tensor(batch["input_ids"].numpy()).long(),
            "attention_mask": torch.tensor(batch["input_mask"].numpy()),
            "token_type_ids": torch.tensor(batch["segment_ids"].numpy()).long(),
        }
        labels = labels if labels.is_floating_point() else labels.long()
        loss = model(**inputs, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize(("name", "label"), [("mrpc", "label_ids"), ("stsb", "label_scores")])
def test_training_has_their_losses(name, label, tmp_path, task_flags):
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(WORDS.split())]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n")
    config = CONFIG.replace(
        vocab_size=len(tokens),
        max_position_embeddings=48,
        initializer_range=0.3,
        classifier_dropout_prob=0.0,
    )
    tokenizer = Tokenizer.from_file(str(tmp_path / "vocab.txt"))
    start = heads.AlbertForPreTraining(config, seed=1)
    pretrained.save_pretrained(start, tmp_path / "bert", spm_model_file=tokenizer)

    runner, flags = task_flags[name]
    flags = [*flags, f"--init_checkpoint={tmp_path / 'bert'}", "--num_train_steps=6", "--seed=3"]
    flags += ["--train_batch_size=5", "--num_warmup_steps=2", "--learning_rate=0.01"]
    flags += ["--log_every_steps=1", "--eval_every_steps=6"]
    fine_tune_here(runner, *flags, f"--output_dir={tmp_path / 'run'}")
    logged = [line for line in lines(tmp_path / "run" / "metrics.jsonl") if "learning_rate" in line]

    task = make_task(runner, *flags)
    context = tf.distribute.InputContext()
    batches = task.train_data.training_dataset(5, seed=3, first_step=0, context=context).take(6)
    model = task.build_model(dtype="float32", recompute_activations=False, seed=3)
    pretrained.save_pretrained(model, tmp_path / "untrained")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "untrained")
    rates = [line["learning_rate"] for line in logged]
    expected = _trained_there(theirs, batches, label, rates)
    np.testing.assert_allclose([line["loss"] for line in logged], expected, rtol=1e-4)
