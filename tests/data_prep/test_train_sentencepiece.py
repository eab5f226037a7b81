"""Corpus -> SentencePiece model: the pieces of the released model, the same bytes each time, wrong input."""

import random
import re

import pytest
import sentencepiece
import tensorflow as tf

from albert_tf.core.errors import UserError
from albert_tf.data_prep import train_sentencepiece
from albert_tf.data_prep.train_sentencepiece import FIRST_TOKENS, TrainSettings


def make_corpus(num_sentences=600):
    """Sentences of words that are made of syllables, in documents."""
    generator = random.Random(5)
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiouéö"]
    words = ["".join(generator.choices(syllables, k=generator.randint(1, 4))) for _ in range(400)]
    lines = []
    for index in range(num_sentences):
        sentence = " ".join(generator.choices(words, k=9))
        lines.append(f'{sentence.capitalize()} ({index}) – £{index}, €5 "x-y".')
        lines += [""] * (index % 7 == 0)
    return "\n".join(lines) + "\n"


def settings_for(folder, **changes):
    paths = {"input_file": f"{folder}/corpus.txt", "output_prefix": f"{folder}/spiece"}
    return TrainSettings(**{**paths, "vocab_size": 300, **changes})


def train(folder, corpus=None, **changes):
    """Runs the program; returns the model's bytes."""
    corpus = make_corpus() if corpus is None else corpus
    (folder / "corpus.txt").write_bytes(corpus if isinstance(corpus, bytes) else corpus.encode())
    train_sentencepiece.main(settings_for(folder, **changes))
    return (folder / "spiece.model").read_bytes()


def pieces(model_proto):
    processor = sentencepiece.SentencePieceProcessor(model_proto=model_proto)
    return [processor.id_to_piece(id) for id in range(processor.get_piece_size())]


def test_special_tokens_come_first_and_text_is_cleaned(tmp_path, capfd):
    model_proto = train(tmp_path)
    learnt = pieces(model_proto)
    assert len(learnt) == 300
    assert tuple(learnt[:13]) == FIRST_TOKENS
    assert tuple(learnt[:6]) == ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "(")
    assert learnt[13] == "▁"
    assert not re.search("[A-Zéö]", "".join(learnt[13:]))
    processor = sentencepiece.SentencePieceProcessor(model_proto=model_proto)
    assert [processor.pad_id(), processor.unk_id()] == [0, 1]
    assert [processor.bos_id(), processor.eos_id()] == [-1, -1]
    assert all(processor.is_control(id) for id in (0, 2, 3, 4))
    output = capfd.readouterr()
    assert output.out == ""
    assert "training on 600 sentences" in output.err
    assert "characters lose accents or marks" in output.err


def test_cased_models_keep_case(tmp_path):
    assert re.search("[A-Z]", "".join(pieces(train(tmp_path, do_lower_case=False))[13:]))


def test_equal_corpora_give_equal_bytes(tmp_path):
    first = train(tmp_path, input_sentence_size=300)
    assert train(tmp_path, input_sentence_size=300) == first
    assert train(tmp_path) != first
    assert pieces(train(tmp_path, input_sentence_size=600)) == pieces(train(tmp_path))  # in order


def test_files_make_one_stream_wherever_they_are(tmp_path):
    corpus = make_corpus(300).splitlines(keepends=True)
    size = {"vocab_size": 99, "input_sentence_size": 150}
    expected = train(tmp_path, "".join(corpus), **size)
    remote = f"ram://{tmp_path.name}"
    for number, first in enumerate(range(0, len(corpus), 120)):
        text = "".join(corpus[first : first + 120])
        (tmp_path / f"{number}.txt").write_text(text)
        tf.io.gfile.makedirs(f"{remote}/sub/.hidden")
        for name in (f"sub/{number}.txt", f"sub/.{number}"):
            with tf.io.gfile.GFile(f"{remote}/{name}", "w") as file:
                file.write(text)
    model = tmp_path / "spiece.model"
    for input_file in (f"{tmp_path}/?.txt", f"{remote}/sub", f"{remote}/sub/?.txt"):
        model.unlink()
        train_sentencepiece.main(settings_for(tmp_path, input_file=input_file, **size))
        assert model.read_bytes() == expected


def test_a_wrong_size_of_the_vocabulary_names_a_possible_one(tmp_path):
    with pytest.raises(UserError, match=r"--vocab_size=30000: .* value <= \d+\.$") as caught:
        train(tmp_path, vocab_size=30000)
    assert not (tmp_path / "spiece.model").exists()
    largest = int(re.search(r"<= (\d+)", str(caught.value))[1])
    assert len(pieces(train(tmp_path, vocab_size=largest))) == largest
    with pytest.raises(UserError, match=r"--vocab_size=20: .* smaller than required_chars"):
        train(tmp_path, vocab_size=20)


def test_output_that_cannot_be_written(tmp_path):
    (tmp_path / "spiece.model").mkdir()
    with pytest.raises(UserError, match="spiece.model: cannot be written"):
        train(tmp_path)
    (tmp_path / "other.model").write_text("text")
    with pytest.raises(UserError, match="other.model is both read and written"):
        train(tmp_path, input_file=str(tmp_path), output_prefix=str(tmp_path / "other"))


MODEL_PROTO = "sentencepiece.sentencepiece_model_pb2"


def test_settings_are_those_of_the_released_model(tmp_path, released_model_file):
    schema = pytest.importorskip(MODEL_PROTO)
    released, ours = schema.ModelProto(), schema.ModelProto()
    with open(released_model_file, "rb") as file:
        released.ParseFromString(file.read())
    ours.ParseFromString(train(tmp_path))

    # Where the text came from, and how much of it; and tables that follow Unicode's version.
    different = ["input", "input_sentence_size", "shuffle_input_sentence", "precompiled_charsmap"]
    different += ["model_prefix", "vocab_size"]
    for name in ("trainer_spec", "normalizer_spec"):
        for field in getattr(released, name).DESCRIPTOR.fields:
            if field.name not in different:
                expected = getattr(getattr(released, name), field.name)
                assert getattr(getattr(ours, name), field.name) == expected, field.name
    first = [(piece.piece, piece.type) for piece in released.pieces[:14]]
    assert [(piece.piece, piece.type) for piece in ours.pieces[:14]] == first
