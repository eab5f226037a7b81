# For type checkers and editors, which cannot follow names that are loaded at their first use.

from albert_tf.core.errors import UserError as UserError
from albert_tf.folded_model import fold as fold
from albert_tf.formats.pretrained import load_pretrained as load_pretrained
from albert_tf.formats.pretrained import save_pretrained as save_pretrained
from albert_tf.model.config import AlbertConfig as AlbertConfig
from albert_tf.model.encoder import AlbertEncoder as AlbertEncoder
from albert_tf.model.heads import AlbertForEmbedding as AlbertForEmbedding
from albert_tf.model.heads import AlbertForMultipleChoice as AlbertForMultipleChoice
from albert_tf.model.heads import AlbertForPreTraining as AlbertForPreTraining
from albert_tf.model.heads import AlbertForSequenceClassification as AlbertForSequenceClassification
from albert_tf.model.heads import AlbertForSpan as AlbertForSpan
from albert_tf.model.heads import AlbertForSpanOrNone as AlbertForSpanOrNone
from albert_tf.model.heads import AlbertForTokenClassification as AlbertForTokenClassification
from albert_tf.serving.predictors import load_predictor as load_predictor
from albert_tf.text.tokenizer import Tokenizer as Tokenizer

__version__: str
