"""The command that turns one layout into another."""

import numpy as np
import pytest

from albert_tf import UserError, convert, load_predictor, load_pretrained, save_pretrained
from albert_tf.export import export_model
from albert_tf.model.heads import AlbertForPreTraining
from albert_tf.text.tokenizer import Tokenizer
from tests.helpers import TINY, train_spm


def settings(model, folder, **changes) -> convert.ConvertSettings:
    return convert.ConvertSettings(model=str(model), output_dir=str(folder), **changes)


def test_conversion_to_tf1_and_back_keeps_weights_and_vocabulary(tiny_pretrained, tmp_path, capsys):
    convert.main(settings(tiny_pretrained, tmp_path / "tf1", format="tf1"))
    shown = capsys.readouterr().out
    assert "newly initialized    0\n" in shown and "ignored              0\n" in shown
    assert shown.endswith(f"parameters, with vocabulary, in {tmp_path / 'tf1'}\n")
    convert.main(settings(tmp_path / "tf1", tmp_path / "hf"))
    old = load_pretrained(tiny_pretrained)
    new = load_pretrained(tmp_path / "hf")
    for name, variable in old.named_variables().items():
        np.testing.assert_array_equal(new.named_variables()[name], variable, err_msg=name)
    vocabularies = [tiny_pretrained / "spiece.model", tmp_path / "tf1" / "30k-clean.model"]
    vocabularies.append(tmp_path / "hf" / "spiece.model")
    assert len({path.read_bytes() for path in vocabularies}) == 1


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_a_vocabulary_that_transformers_reads_otherwise_is_named(model_type, tmp_path, capsys):
    words = ["a cat sat on a dog"]
    vocabulary = train_spm(
        tmp_path / "a.model", words, model_type=model_type, vocab_size=30, hard_vocab_limit=False
    )
    size = Tokenizer.from_file(vocabulary).vocab_size
    source = AlbertForPreTraining(TINY.replace(vocab_size=size, num_hidden_layers=1), seed=4)
    save_pretrained(source, tmp_path / "source", spm_model_file=vocabulary)
    convert.main(settings(tmp_path / "source", tmp_path / "hf"))
    is_named = "warning: the vocabulary is a BPE model" in capsys.readouterr().err
    assert is_named == (model_type == "bpe")


def test_another_model_is_not_overwritten(tmp_path):
    save_pretrained(AlbertForPreTraining(TINY, seed=1), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(UserError, match=r"contains a model already"):
        convert.main(settings(tmp_path, tmp_path))
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "format"),
    [("cls/seq_relationship/", "tf1"), ("cls/predictions/", "hf"), ("bert/pooler/", "tf1")],
)
def test_untrained_heads_stay_untrained(tmp_path, head, format):
    words = ["a cat, a dog. a house - a tree"]
    vocabulary = train_spm(tmp_path / "a.model", words, model_type="char", hard_vocab_limit=False)
    size = Tokenizer.from_file(vocabulary).vocab_size
    source = AlbertForPreTraining(TINY.replace(vocab_size=size, num_hidden_layers=1), seed=4)
    # Without a pooler, the order of texts means nothing either.
    starts = (head, "cls/seq_relationship/") if "pooler" in head else (head,)
    missing = {name for name in source.named_variables() if name.startswith(starts)}
    folder = tmp_path / "source"
    save_pretrained(source, folder, spm_model_file=vocabulary, untrained=missing)
    line = "a [MASK]" if "predictions" in head else "a\tb"
    reasons = []
    for path in (folder, tmp_path / "new", tmp_path / "out" / "1"):
        if path.name == "new":
            convert.main(settings(folder, path, format=format))
        elif path.name == "1" and format == "tf1":
            continue  # one export is enough
        elif path.name == "1":
            export_model(str(tmp_path / "new"), str(tmp_path / "out"))
        with pytest.raises(UserError, match="this model cannot") as error:
            load_predictor(path).predict([line])
        reasons.append(str(error.value))
    assert len(set(reasons)) == 1
