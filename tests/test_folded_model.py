"""Folding and distillation in Python do what the programs do, and say in one line what is wrong."""

import numpy as np
import pytest

import albert_tf
from albert_tf.core.errors import UserError
from albert_tf.model.heads import AlbertForPreTraining
from tests.helpers import TINY, WORDS

TEXTS = [WORDS, " ".join(WORDS.split()[3:9]), "  \n".join(WORDS.split()[:2])]


@pytest.fixture(scope="module")
def bert(tmp_path_factory, tiny_pretrained):
    """A folder of a BERT with three layers."""
    vocabulary_file = str(tiny_pretrained / "spiece.model")
    config = TINY.replace(
        vocab_size=albert_tf.Tokenizer.from_file(vocabulary_file).vocab_size,
        embedding_size=TINY.hidden_size,
        num_hidden_layers=3,
        share_parameters="none",
        initializer_range=0.2,
    )
    folder = str(tmp_path_factory.mktemp("bert") / "model")
    model = AlbertForPreTraining(config, seed=3)
    albert_tf.save_pretrained(model, folder, spm_model_file=vocabulary_file)
    return folder


def test_a_folded_model_is_distilled_and_written(bert, tmp_path, eager, capsys):
    folded = albert_tf.fold(bert, embedding_size=5)
    config = albert_tf.load_pretrained(folded.path).config
    sizes = (config.embedding_size, config.num_hidden_groups, config.num_hidden_layers)
    assert sizes == (5, 3, 3)

    before = albert_tf.load_predictor(folded.path).embed(TEXTS)
    short = {"num_train_steps": 3, "num_warmup_steps": 1, "train_batch_size": 2}
    assert folded.distill(TEXTS, **short) is folded
    assert "--max_seq_length is 17, as the models have no more positions" in capsys.readouterr().out
    folded.save_pretrained(str(tmp_path / "written"))
    after = albert_tf.load_predictor(str(tmp_path / "written")).embed(TEXTS)
    assert np.abs(after - before).max() > 1e-4
    with pytest.raises(UserError, match="contains a model already"):
        folded.save_pretrained(str(tmp_path / "written"))


def test_the_module_of_the_program_is_the_function(bert):
    import albert_tf.fold as program

    assert program is albert_tf.fold
    folded = program(bert, embedding_size=5, num_hidden_groups=2, num_folded_layers=2)
    assert albert_tf.load_pretrained(folded.path).config.num_hidden_layers == 2


def test_an_albert_is_not_divided_into_more_groups_than_it_has(tmp_path):
    config = TINY.replace(num_hidden_layers=6, num_hidden_groups=2)
    model = AlbertForPreTraining(config, seed=3)
    albert_tf.save_pretrained(model, str(tmp_path / "albert"))
    folded = albert_tf.fold(str(tmp_path / "albert"), embedding_size=5)
    assert albert_tf.load_pretrained(folded.path).config.num_hidden_groups == 2


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"embeding_size": 5}, "embeding_size: is no setting here"),
        ({"num_hidden_groups": 0}, "num_hidden_groups must be at least 1"),
        ({"embedding_size": 1000}, "embedding_size is above the model's"),
    ],
)
def test_wrong_settings_of_folding_get_one_line(bert, settings, reason):
    with pytest.raises(UserError, match=reason):
        albert_tf.fold(bert, **settings)


def test_wrong_texts_get_one_line(bert):
    folded = albert_tf.fold(bert, embedding_size=5)
    with pytest.raises(UserError, match="texts: expected a list of texts, got one text"):
        folded.distill("one text")
    with pytest.raises(UserError, match="texts: expected at least one text"):
        folded.distill(["", " "])
    with pytest.raises(UserError, match="minuts: is no setting here"):
        folded.distill(TEXTS, minuts=3)
