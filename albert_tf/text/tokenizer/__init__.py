"""Text -> token ids, with offsets into the original text.

`base.py` has what all tokenizers do; each kind of vocabulary is a subclass of `Tokenizer` in a module of its own, and a
row here. `serving/in_graph/graph_tokenizer.py` has the same steps as TensorFlow operations, for exported models.

Special tokens are inserted by id only: "[CLS]" inside a text is text, unless the rules (`rules.py`) say otherwise.
TensorFlow is imported for remote paths only, so that processes that prepare data start without it.
"""

from albert_tf.text.tokenizer.base import Tokenizer
from albert_tf.text.tokenizer.sentencepiece_tokenizer import SentencePieceTokenizer
from albert_tf.text.tokenizer.wordpiece_tokenizer import WordPieceTokenizer

__all__ = ["SentencePieceTokenizer", "Tokenizer", "WordPieceTokenizer"]

# A folder's vocabulary is looked for in this order.
Tokenizer.kinds = (SentencePieceTokenizer, WordPieceTokenizer)
