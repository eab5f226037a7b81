"""The WordPiece vocabulary in a `tokenizer.json`.

    vocabulary_of             the vocabulary, with the tokens that the file adds to it
    check_separates_chinese   checks that Chinese is split as usual

Source: transformers, the file `tokenizer.json`.
"""

from collections.abc import Mapping
from typing import Any

from albert_tf.core.errors import UserError, shortened
from albert_tf.text import added_tokens, wordpiece
from albert_tf.text.added_tokens import AddedToken, Vocabulary

# What the file says about the words of BERT's tokenizer.
_STEPS: Mapping[str, Mapping[str, Any]] = {
    "normalizer": {"type": "BertNormalizer", "clean_text": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "model": {"continuing_subword_prefix": wordpiece.CONTINUES_WORD},
}


def vocabulary_of(values: Mapping[str, Any], source: str) -> Vocabulary | None:
    """The vocabulary of a `tokenizer.json`, as the content of a `vocab.txt`; None if it has no WordPiece model.

    Added tokens, such as [MASK] of a trained tokenizer, may be missing among those of the model. They have lines, too,
    but for those after all others that are found in texts.

    Raises:
      UserError: it cleans or splits text in another way than BERT does, or its tokens have no ids 0, 1, 2 and so on.
    """
    model = values.get("model")
    if not isinstance(model, dict) or model.get("type") != "WordPiece":
        return None
    _check_steps(values, source)

    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, dict) or not all(type(id) is int for id in vocabulary.values()):
        raise UserError(f"{source}: expected tokens with their ids as the model's vocab")

    lines = {id: text for text, id in vocabulary.items()}  # of a vocab.txt, by id
    added: list[AddedToken] = []
    for token in added_tokens.in_tokenizer_json(values, source):
        id_in_model = vocabulary.get(token.text, token.id)
        if id_in_model != token.id:
            continue
        lines[token.id] = added_tokens.name_in_file(token)
        if token.is_found:
            added.append(token)

    if not lines:
        return None

    ids = sorted(lines)
    texts = [*vocabulary, *(token.text for token in added)]
    has_breaks = any("\n" in text for text in texts)
    if has_breaks or ids != list(range(len(ids))):
        raise UserError(f"{source}: expected tokens with the ids 0, 1, 2 and so on")

    # New tokens at the end stand beside the vocabulary.
    new_ids = {token.id for token in added if token.text not in vocabulary}
    while len(ids) > 0 and ids[-1] in new_ids:
        ids.pop()
    content = "".join(f"{lines[id]}\n" for id in ids)
    return Vocabulary(content.encode(), added_tokens.by_id(added))


def _check_steps(values: Mapping[str, Any], source: str) -> None:
    """Checks that a `tokenizer.json` cleans and splits text as BERT does; what it does not say is as usual."""
    for part, expected in _STEPS.items():
        step = values.get(part)
        settings = step if isinstance(step, dict) else {"type": step}
        unusual = {
            key: settings[key]
            for key, usual in expected.items()
            if settings.get(key, usual) != usual
        }
        if unusual:
            got = shortened(unusual)
            raise UserError(f"{source}: {part} has {got}, expected BERT's {expected}")


def check_separates_chinese(values: Mapping[str, Any], source: str) -> None:
    """Checks that a `tokenizer.json` without the model's folder has the usual words of Chinese."""
    normalizer = values.get("normalizer")
    if isinstance(normalizer, dict) and normalizer.get("handle_chinese_chars") is False:
        reason = "handle_chinese_chars is false, expected true, or the model's folder"
        raise UserError(f"{source}: {reason} (Tokenizer.from_pretrained)")
