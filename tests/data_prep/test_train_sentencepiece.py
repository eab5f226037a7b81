"""Corpus -> SentencePiece model: the pieces of the released model, the same bytes each time, wrong input."""

import gzip
import json
import random
import re
import tracemalloc

import pytest
import sentencepiece
import tensorflow as tf

from albert_tf.core.errors import UserError
from albert_tf.data_prep import corpus, normalization, train_sentencepiece
from albert_tf.data_prep.train_sentencepiece import FIRST_TOKENS, TrainSettings, divided
from albert_tf.formats.tokenizer_files import vocabulary_files
from albert_tf.serving.in_graph.graph_tokenizer import graph_tokenizer
from albert_tf.text.tokenizer import Tokenizer


def make_corpus(num_sentences=600):
    """Sentences of words that are made of syllables, in documents."""
    generator = random.Random(5)
    syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiouéö"]
    words = ["".join(generator.choices(syllables, k=generator.randint(1, 4))) for _ in range(400)]
    lines = []
    for index in range(num_sentences):
        sentence = " ".join(generator.choices(words, k=9))
        lines.append(f'{sentence.capitalize()} ({index}) – £{index}, €5 "x-y".')
        if index % 7 == 0:
            lines.append("")
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


def test_fewer_sentences_than_the_library_accepts_are_an_error_with_the_least(tmp_path):
    with pytest.raises(UserError, match="--input_sentence_size must be at least 101"):
        train(tmp_path, input_sentence_size=100)
    assert pieces(train(tmp_path, input_sentence_size=101, vocab_size=60))


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


def test_an_error_after_enough_text_for_a_vocabulary_ends_it_before_the_training(tmp_path):
    """The trainer, for its part, would go on with the sentences before an error of its iterator."""
    with pytest.raises(UserError, match="corpus.txt, line 687: not UTF-8"):
        train(tmp_path, make_corpus().encode() + b"A caf\xe9.\n")
    assert not (tmp_path / "spiece.model").exists()


def test_the_last_line_alone_decides_about_the_rules_for_joiners(tmp_path, capfd):
    model_proto = train(tmp_path, make_corpus() + JOINED)
    assert len(pieces(model_proto)) == 300
    assert "joiners (U+200C, U+200D) are kept" in capfd.readouterr().err


def test_an_interruption_while_the_text_is_read_ends_the_training(tmp_path):
    def interrupted():
        yield from make_corpus().splitlines()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_sentencepiece.train(interrupted(), settings_for(tmp_path))


def test_output_that_cannot_be_written(tmp_path):
    (tmp_path / "spiece.model").mkdir()
    with pytest.raises(UserError, match="spiece.model: cannot be written"):
        train(tmp_path)
    (tmp_path / "other.model").write_text("text")
    both = {"input_file": f"{tmp_path}/other.model", "output_prefix": f"{tmp_path}/other"}
    with pytest.raises(UserError, match="other.model is both read and written"):
        train(tmp_path, **both)


def test_lines_above_the_limit_of_the_trainer_count(tmp_path, capfd):
    words = ["zuluq", "zuluw", "zulux"]
    long = " ".join(random.Random(1).choices(words, k=900))
    without_blanks = "日本語" * 700
    learnt = "".join(pieces(train(tmp_path, make_corpus(200) + f"{long}\n{without_blanks}\n")))
    assert {*"qwx日本語"} <= {*learnt}
    output = capfd.readouterr().err
    assert "2 lines of more than 4,192 bytes count as several sentences each" in output
    assert "training on 204 sentences, all of the text" in output


@pytest.mark.parametrize(
    "text", ["ab " * 9000, "é" * 9001, "x日" * 3000, " " + "𝒳" * 5000, "short"]
)
def test_parts_of_a_sentence_have_all_its_text(text):
    parts = list(divided(text))
    assert "".join(parts) == text
    assert max(len(part.encode()) for part in parts) <= 4192
    assert len(parts) == -(-len(text.encode()) // 4192)
    if "ab" in text:
        assert {word for part in parts for word in part.split()} == {"ab"}


def test_a_sentence_with_the_sign_of_the_trainer_counts(tmp_path):
    lines = "".join(f"zq{number} ▅ xw{number}\n" for number in range(30))
    assert {*"qwxz"} <= {*"".join(pieces(train(tmp_path, make_corpus(200) + lines)))}


def test_the_share_of_the_text_is_printed_and_warned_about_below_nine_tenths(tmp_path, capfd):
    train(tmp_path, input_sentence_size=300)
    output = capfd.readouterr().err
    assert "training on a random 300 of 600 sentences, 50.0 % of the text" in output
    warning = "warning: 50.0 % of the text has no part in the vocabulary; a higher"
    assert f"{warning} --input_sentence_size (now 300)" in output
    train(tmp_path, input_sentence_size=560)
    output = capfd.readouterr().err
    assert "training on a random 560 of 600 sentences, 93.3 % of the text" in output
    assert "warning" not in output


def test_a_line_of_any_length_needs_little_memory(tmp_path):
    path = tmp_path / "one_line.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(
            b"words-of-a-very-long-line-each-with-63-letters-and-dashes-a-b-c " * (3 << 16)
        )  # 12 MB
    settings = settings_for(tmp_path)
    reader = corpus.LineReader("error")
    tracemalloc.start()
    num_bytes = 0
    for sentence in train_sentencepiece._sentences([str(path)], reader, settings, True):
        num_bytes += len(sentence)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert num_bytes > 11 << 20
    assert peak < 10e6


JOINED = "می\u200cروم"  # "I go", with the joiner that separates two letters of a word


@pytest.fixture(scope="module")
def joiners(tmp_path_factory) -> Tokenizer:
    """A vocabulary of Persian words with joiners, and of words with soft hyphens and other invisible characters."""
    folder = tmp_path_factory.mktemp("joiners")
    letters = [*"ابپتجدرسشکگلمنوهیabcd"]
    rng = random.Random(2)
    words = ["".join(rng.choices(letters, k=rng.randint(2, 4))) for _ in range(99)]
    marks = ["\u200c", "\u00ad", "", ""]
    lines = [
        " ".join(rng.choice(words) + rng.choice(marks) + rng.choice(words) for _ in range(6))
        for _ in range(300)
    ]
    train(folder, "\n".join(lines), vocab_size=90, keep_accents=True, byte_fallback=False)
    return Tokenizer.from_file(folder / "spiece.model", keep_accents=True)


def test_a_word_with_a_joiner_is_neither_two_words_nor_the_word_without_it(joiners):
    texts = [JOINED, JOINED.replace("\u200c", " "), JOINED.replace("\u200c", "")]
    texts.append(JOINED.replace("\u200c", "\u200d"))
    assert len({tuple(joiners.encode(text)) for text in texts}) == 4
    assert joiners.unk_id not in joiners.encode(JOINED)
    assert joiners.decode(joiners.encode(JOINED)) == JOINED


@pytest.mark.parametrize(
    "mark", ["\u00ad", "\u061c", "\u200e", "\u202b", "\u2060", "\u2069", "\ufeff"]
)
def test_other_invisible_characters_in_words_do_not_change_tokens(joiners, mark):
    text = f"ab{mark}ca"
    ids, spans = joiners.encode_with_offsets(text)
    assert ids == joiners.encode("abca") == joiners.encode(text)
    assert "".join(text[start:end] for start, end in spans).replace(mark, "") == "abca"


def test_the_joiner_separates_words_nowhere_else(joiners):
    """U+200B separates words in Thai and Khmer."""
    assert joiners.encode("ab\u200bca") == joiners.encode("ab ca") != joiners.encode("abca")


def test_a_text_without_such_characters_has_the_tokens_of_the_released_rules(tmp_path, joiners):
    released = train(tmp_path)
    schema = pytest.importorskip(MODEL_PROTO)
    assert schema.ModelProto.FromString(released).normalizer_spec.name == "nmt_nfkc"
    of_joiners = schema.ModelProto.FromString(joiners.content).normalizer_spec
    assert of_joiners.name == normalization.NAME
    assert of_joiners.normalization_rule_tsv == ""
    old, new = (
        sentencepiece.SentencePieceProcessor(model_proto=content).normalize
        for content in (released, joiners.content)
    )
    texts = {f"a{chr(code)}b" for code in range(1, 0x30000) if not 0xD800 <= code < 0xE000}
    different = {text[1] for text in texts if old(text) != new(text)}
    assert different == {*normalization.REMOVED, "\u200c"}


SYMBOLS = {
    "user_defined_symbols": "kabel, @@,[URL],(",
    "required_chars": "Ωé字",
    "byte_fallback": True,
}


@pytest.fixture(scope="module")
def symbols(tmp_path_factory) -> Tokenizer:
    """A vocabulary with all three options; "ka" and "bel" are frequent in its text, "kabel" is not there."""
    folder = tmp_path_factory.mktemp("symbols")
    text = "ka bel kano belo, " * 3
    train(folder, make_corpus(200) + f"{text}\n" * 99, vocab_size=420, **SYMBOLS)
    return Tokenizer.from_file(folder / "spiece.model")


def tokens(tokenizer, text):
    return [tokenizer.id_to_token(id) for id in tokenizer.encode(text)]


def test_symbols_stay_whole_rare_characters_have_tokens_and_others_bytes(symbols):
    assert tuple(symbols.vocabulary()[:16]) == (*FIRST_TOKENS, "kabel", "@@", "[url]")
    found = tokens(symbols, "the Kabel x@@kano")
    assert [token for token in found if token in ("kabel", "@@")] == ["kabel", "@@"]
    assert "kabel" in tokens(symbols, "xkabelx")
    assert tokens(symbols, "Ω 字 [URL]") == ["▁", "ω", "▁", "字", "▁", "[url]"]
    assert tokens(symbols, "語") == ["▁", "<0xE8>", "<0xAA>", "<0x9E>"]
    assert symbols.decode(symbols.encode("語 Kabel")) == "語 kabel"


def test_a_symbol_and_the_bytes_of_a_character_are_masked_with_the_word_they_are_in(symbols):
    ids = symbols.encode("the kabel 語")
    starts = symbols.word_starts("marker")[ids].tolist()
    first = len(symbols.encode("the"))
    assert starts[first:] == [True, False, True, False, False, False]
    # By the original's rule, made for English, a foreign character starts a word.
    starts = symbols.word_starts("original")[ids].tolist()
    assert starts[first:] == [True, False, True, True, False, False]


def test_symbols_and_bytes_are_the_same_in_a_graph_and_in_tokenizer_json(symbols):
    texts = ["the Kabel x@@kano", "Ω µ é 字 語 \U0010ffff \0 [URL] kabelkabel (kabel)", ""]
    assert graph_tokenizer(symbols).encode(texts).to_list() == list(map(symbols.encode, texts))
    content = json.loads(vocabulary_files(symbols, 64)["tokenizer.json"])
    assert content["model"]["byte_fallback"] is True
    scores = dict(content["model"]["vocab"])
    # With a lower score, the library would cut the symbol, of which parts are tokens, too.
    assert {"ka", "bel"} & {*scores} or {"▁ka", "▁bel"} & {*scores}
    assert scores["kabel"] == scores["@@"] == scores["("] == -0.1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"user_defined_symbols": "a b"}, "user_defined_symbols=a b: must not contain white space"),
        ({"user_defined_symbols": "x,[MASK]"}, r"=\[MASK\]: is a special token"),
        ({"user_defined_symbols": "<0x0A>"}, "=<0x0A>: is the name of a byte"),
        ({"user_defined_symbols": "\u0301"}, "nothing is left after cleaning"),
        ({"user_defined_symbols": "▁a"}, "must not contain"),
        ({"user_defined_symbols": "한국"}, "give that, or --keep_accents"),
        ({"user_defined_symbols": "①", "keep_accents": True}, "in a text, it would be '1'"),
        ({"user_defined_symbols": "a\u00adb"}, "in a text, it would be 'ab'"),
        ({"required_chars": " \u0301"}, "nothing is left after cleaning"),
    ],
)
def test_symbols_that_no_text_can_contain_are_rejected(tmp_path, flags, message):
    with pytest.raises(UserError, match=message):
        settings_for(tmp_path, **flags)


def test_bytes_need_a_vocabulary_of_their_size(tmp_path):
    with pytest.raises(UserError, match=r"--vocab_size=260: .* smaller than required_chars"):
        train(tmp_path, vocab_size=260, byte_fallback=True)


MODEL_PROTO = "sentencepiece.sentencepiece_model_pb2"


def test_settings_are_those_of_the_released_model(tmp_path, released_model_file):
    schema = pytest.importorskip(MODEL_PROTO)
    released = schema.ModelProto()
    ours = schema.ModelProto()
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
