"""Another kind of vocabulary is a class and a row: here one whose tokens are the bytes of a text."""

import json

import pytest

from albert_tf import Tokenizer, UserError
from albert_tf.formats import tokenizer_files
from albert_tf.formats.hugging_face.vocabulary import vocabulary_of
from albert_tf.formats.weights import only_vocabulary
from albert_tf.serving.page.tokenizer_data import tokenizer_data

SPECIAL = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]


class ByteTokenizer(Tokenizer):
    """Special tokens, one on each line after a title; the ids after them are those of the 256 bytes."""

    file_name = "bytes.txt"
    file_names = r"bytes.*\.txt"
    _needs_special_tokens = "its file lists them"

    @staticmethod
    def recognizes(content):
        return content.startswith(b"#bytes\n")

    def _load(self, source):
        if self.added_tokens:
            raise UserError(f"{source}: bytes need no added tokens")
        self._special = self.content.decode().split()[1:]
        self.vocab_size = len(self._special) + 256
        self.unk_id = 1
        self._find_special_ids("<pad>", source)

    def id_to_token(self, id):
        return self._special[id] if id < len(self._special) else f"<{id - len(self._special)}>"

    def token_to_id(self, token):
        tokens = self.vocabulary()
        return tokens.index(token) if token in tokens else self.unk_id

    def clean(self, text):
        return text.lower() if self.do_lower_case else text

    def _encode_cleaned(self, texts):
        return [[len(self._special) + byte for byte in text.encode()] for text in texts]

    def _encode_part(self, text):
        spans = [(at, at + 1) for at, char in enumerate(text) for _ in char.encode()]
        return self._encode_cleaned([self.clean(text)])[0], spans

    def _decode(self, ids):
        return bytes(id - len(self._special) for id in ids).decode()

    def _is_word_start(self, token, rule):
        return True


@pytest.fixture
def vocabulary(tmp_path, monkeypatch):
    monkeypatch.setattr(Tokenizer, "kinds", (ByteTokenizer, *Tokenizer.kinds))
    monkeypatch.setitem(tokenizer_files._PARTS, ByteTokenizer, lambda tokenizer: {})
    path = tmp_path / "bytes.txt"
    path.write_text("\n".join(["#bytes", *SPECIAL, ""]))
    return path


def test_a_kind_of_ones_own_is_read_and_encodes(vocabulary):
    tokenizer = Tokenizer.from_file(vocabulary)
    assert type(tokenizer) is ByteTokenizer
    assert tokenizer.encode("Aé") == [5 + 97, 5 + 0xC3, 5 + 0xA9]
    assert tokenizer.encode_with_offsets("Aé")[1] == [(0, 1), (1, 2), (1, 2)]
    assert tokenizer(["ab"])["input_ids"].tolist() == [[2, 5 + 97, 5 + 98, 3]]
    assert tokenizer.decode([2, 5 + 97, 3]) == "a"


def test_folders_with_a_kind_of_ones_own_are_found_and_written(vocabulary, tmp_path):
    folder = str(tmp_path)
    assert only_vocabulary(folder) == str(vocabulary)
    assert vocabulary_of(folder, {})["vocabulary"] == str(vocabulary)
    Tokenizer.from_file(vocabulary).save_pretrained(tmp_path / "saved")
    settings = json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text())
    assert settings["mask_token"]["content"] == "[MASK]"
    assert type(Tokenizer.from_file(tmp_path / "saved" / "bytes.txt")) is ByteTokenizer


def test_the_page_names_the_kinds_that_it_knows(vocabulary):
    tokenizer = Tokenizer.from_file(vocabulary)
    message = "m: the vocabulary is that of a ByteTokenizer, expected spiece.model or vocab.txt"
    with pytest.raises(UserError, match=message):
        tokenizer_data(tokenizer, "m")
