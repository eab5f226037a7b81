"""Vocabularies that earlier versions wrote: the kind of each added token was a mark in the vocabulary itself.

In a vocab.txt, the line of an added token ended in a tab and "added" or "added special"; in a SentencePiece model, it
was a user-defined piece whose score was the kind. Nothing writes such files any more.
"""

from google.protobuf.message import DecodeError
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from albert_tf.text import added_tokens, wordpiece
from albert_tf.text.added_tokens import HIDDEN, PLAIN, SPECIAL, AddedToken, Vocabulary

_MARKS = {"\tadded": PLAIN, "\tadded special": SPECIAL}


def without_marks(content: bytes) -> Vocabulary:
    """A vocabulary of this or an earlier version, as the plain content of its file and the added tokens.

    Marked tokens at the end are not in the plain content; others stay, so that no id changes. Content without marks
    stays as it is, damaged content too.
    """
    if wordpiece.is_wordpiece(content):
        return _wordpiece_without_marks(content)
    return _sentencepiece_without_marks(content)


def _wordpiece_without_marks(content: bytes) -> Vocabulary:
    if b"\tadded" not in content:
        return Vocabulary(content)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return Vocabulary(content)

    lines: dict[str, str] = {}  # the plain line of each token, by the token
    kinds: dict[str, int] = {}
    for line in text.removesuffix("\n").split("\n"):
        token, kind = _token_and_kind(line)
        lines.setdefault(token, line)
        if kind != HIDDEN:
            kinds[token] = kind
    if not kinds:
        return Vocabulary(content)

    added = []
    for id, token in enumerate(lines):
        if token in kinds:
            added.append(AddedToken(token, id, kinds[token]))
            lines[token] = added_tokens.name_in_file(added[-1])
    while len(lines) > 0 and next(reversed(lines)) in kinds:
        lines.popitem()
    plain = "".join(f"{line}\n" for line in lines.values())
    return Vocabulary(plain.encode(), tuple(added))


def _token_and_kind(line: str) -> tuple[str, int]:
    """The token of a line of a vocab.txt, and the kind by its mark, HIDDEN without one."""
    for mark, kind in _MARKS.items():
        if line.endswith(mark):
            return line.removesuffix(mark), kind
    return wordpiece.token_of_line(line), HIDDEN


def _sentencepiece_without_marks(content: bytes) -> Vocabulary:
    try:
        model = ModelProto.FromString(content)
    except DecodeError:
        return Vocabulary(content)

    added = []
    for id, piece in enumerate(model.pieces):
        if piece.type == piece.USER_DEFINED and piece.score in (PLAIN, SPECIAL):
            added.append(AddedToken(piece.piece, id, int(piece.score)))
            # A user-defined piece would be one that SentencePiece finds in texts.
            piece.type = piece.CONTROL
            piece.score = 0
    if not added:
        return Vocabulary(content)

    ids = {token.id for token in added}
    while len(model.pieces) - 1 in ids:
        del model.pieces[-1]
    return Vocabulary(model.SerializeToString(), tuple(added))
