"""WordPiece as TensorFlow operations: the same ids and offsets as `text/wordpiece.py` for every text.

tensorflow-text's `BertTokenizer` is not used, because its words differ from the original's: it drops other control
characters, and recognizes fewer Chinese characters and punctuation marks. Its `FastWordpieceTokenizer` splits the
words.
"""

import tensorflow as tf

from albert_tf.serving.in_graph.characters import (
    decode_in_graph,
    lower,
    token_spans,
    two_characters_of_dotted_i,
)
from albert_tf.text import wordpiece
from albert_tf.text.character_class import inside_class
from albert_tf.text.tokenizer import WordPieceTokenizer


def graph_wordpiece(tokenizer: WordPieceTokenizer) -> tf.Module:
    """A module with `clean`, `encode` and `encode_with_offsets`, as in `tokenizer.graph_tokenizer_with_offsets`."""
    import tensorflow_text as tf_text  # imported here, because models that take ids do not need it

    module = tf.Module(name="graph_tokenizer")
    module.wordpiece = tf_text.FastWordpieceTokenizer(
        _tokens_of_words(tokenizer),
        suffix_indicator=wordpiece.CONTINUES_WORD,
        max_bytes_per_word=4 * wordpiece.MOST_CHARACTERS,
        unknown_token=wordpiece.UNKNOWN,
        no_pretokenization=True,
        token_out_type=tf.int32,
    )
    is_lower, token_lengths = tokenizer.do_lower_case, tokenizer.token_lengths
    strips_accents = is_lower and not tokenizer.keep_accents
    texts_spec = [tf.TensorSpec([None], tf.string, name="texts")]

    def ids_and_lengths(texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Ids of texts of words [B], int32, and their numbers of characters, int64; [B, (tokens)] each."""
        words = tf.strings.split(texts)
        lengths = tf.cast(tf.strings.length(words.flat_values, unit="UTF8_CHAR"), tf.int64)
        is_long = lengths > wordpiece.MOST_CHARACTERS
        words = words.with_flat_values(tf.where(is_long, wordpiece.UNKNOWN, words.flat_values))
        ids = module.wordpiece.tokenize(words)
        lengths = tf.repeat(lengths, ids.values.row_lengths())
        is_unknown = ids.flat_values == tokenizer.unk_id
        lengths = tf.where(is_unknown, lengths, tf.gather(token_lengths, ids.flat_values))
        return ids.merge_dims(1, 2), ids.with_flat_values(lengths).merge_dims(1, 2)

    # Without autograph, which would take half a minute for the loops that write the character classes.
    @tf.function(input_signature=texts_spec, autograph=False)
    def clean(texts: tf.Tensor) -> tf.Tensor:
        return _valid(texts)

    @tf.function(input_signature=texts_spec, autograph=False)
    def encode(texts: tf.Tensor) -> tf.RaggedTensor:
        texts = _without_control_characters(_valid(texts))
        texts = lower(texts) if is_lower else texts
        return ids_and_lengths(_separated(texts, strips_accents))[0]

    @tf.function(input_signature=texts_spec, autograph=False)
    def encode_with_offsets(texts: tf.Tensor) -> tuple[tf.RaggedTensor, ...]:
        chars = decode_in_graph(texts)
        split, starts, ends = _split_with_spans(chars, is_lower, strips_accents)
        ids, lengths = ids_and_lengths(split)
        return ids, *token_spans(lengths, starts, ends, chars.row_lengths())

    module.clean, module.encode, module.encode_with_offsets = clean, encode, encode_with_offsets
    return module


def _tokens_of_words(tokenizer: WordPieceTokenizer) -> list[str]:
    """The tokens by id. Tokens that occur in no word are replaced, because the library does not accept some of them."""
    tokens = tokenizer.vocabulary()
    is_usual = [
        "".join(wordpiece.split_words(token, do_lower_case=False).split()) == token
        and token != wordpiece.CONTINUES_WORD
        for token in tokens
    ]
    return [
        token if usual else f"[unused {id}]"
        for id, (token, usual) in enumerate(zip(tokens, is_usual, strict=True))
    ]


def _valid(texts: tf.Tensor) -> tf.Tensor:
    return tf.strings.unicode_transcode(
        texts, "UTF-8", "UTF-8", errors="replace", replace_control_characters=False
    )


def _without_control_characters(texts: tf.Tensor) -> tf.Tensor:
    texts = tf.strings.regex_replace(texts, f"[{inside_class(wordpiece.is_removed)}]", "")
    return tf.strings.regex_replace(texts, f"[{inside_class(str.isspace)}]", " ")


def _separated(texts: tf.Tensor, strips_accents: bool) -> tf.Tensor:
    """Texts with spaces around Chinese characters and punctuation marks; optionally without accents."""
    import tensorflow_text as tf_text

    if strips_accents:
        texts = tf_text.normalize_utf8(texts, "NFD")
        texts = tf.strings.regex_replace(texts, f"[{inside_class(wordpiece.is_accent)}]", "")
    # A Chinese character is unchanged by this, so it need not be separated before.
    return tf.strings.regex_replace(texts, f"[{inside_class(wordpiece.is_separated)}]", r" \0 ")


def _split_with_spans(
    chars: tf.RaggedTensor, is_lower: bool, strips_accents: bool
) -> tuple[tf.Tensor, tf.RaggedTensor, tf.RaggedTensor]:
    """`wordpiece.split_with_origins` for code points [B, (characters)]; spaces have no start and end."""
    import tensorflow_text as tf_text

    # A batch has few different characters, so each is processed once. Only lower case depends on neighbors.
    distinct, kind = tf.unique(chars.flat_values, out_idx=tf.int64)
    distinct = tf.strings.unicode_encode(distinct[:, None], "UTF-8")
    distinct = _without_control_characters(distinct)
    if is_lower and not strips_accents:
        distinct = two_characters_of_dotted_i(distinct)
    distinct = _separated(distinct, strips_accents)
    parts = tf.strings.unicode_decode(distinct, "UTF-8")
    num_parts = tf.gather(parts.row_lengths(), kind)

    # A character that is removed extends the span of the character before it.
    row, splits = chars.value_rowids(), chars.row_splits
    begins = tf.concat([tf.where(num_parts > 0)[:, 0], [tf.size(kind, tf.int64)]], axis=0)
    ends = tf.gather(begins, tf.cumsum(tf.cast(num_parts > 0, tf.int64)))
    ends = tf.minimum(ends, tf.gather(splits, row + 1))

    origin = tf.repeat(tf.range(tf.size(kind, tf.int64)), num_parts)
    split = tf.gather(parts, kind).flat_values
    from_rows = tf.RaggedTensor.from_value_rowids
    split = from_rows(split, tf.gather(row, origin), chars.nrows(), validate=False)
    texts = tf.strings.unicode_encode(split, "UTF-8")
    texts = lower(texts) if is_lower else texts
    if strips_accents:  # the order of marks that are not accents is normalized
        texts = tf_text.normalize_utf8(texts, "NFD")

    origin = tf.boolean_mask(origin, split.flat_values != ord(" "))
    row = tf.gather(row, origin)
    first = tf.gather(splits, row)
    spans = (origin - first, tf.gather(ends, origin) - first)
    return texts, *(from_rows(values, row, chars.nrows(), validate=False) for values in spans)
