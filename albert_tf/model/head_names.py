"""The names of the models of `heads.py` and of the parts of their heads, for code that runs without TensorFlow."""

PRETRAINING = "AlbertForPreTraining"
SEQUENCE_CLASSIFICATION = "AlbertForSequenceClassification"
TOKEN_CLASSIFICATION = "AlbertForTokenClassification"
MULTIPLE_CHOICE = "AlbertForMultipleChoice"
SPAN = "AlbertForSpan"
SPAN_OR_NONE = "AlbertForSpanOrNone"
EMBEDDING = "AlbertForEmbedding"

# A model's class -> the class of the transformers library with the same head; "" if there is none.
ARCHITECTURES = {
    PRETRAINING: "AlbertForPreTraining",
    SEQUENCE_CLASSIFICATION: "AlbertForSequenceClassification",
    TOKEN_CLASSIFICATION: "AlbertForTokenClassification",
    MULTIPLE_CHOICE: "AlbertForMultipleChoice",
    SPAN: "AlbertForQuestionAnswering",
    SPAN_OR_NONE: "",
    EMBEDDING: "",
}

# Whether the outputs of a model depend on the encoder's pooler, so that training changes it.
USES_POOLER = {
    PRETRAINING: True,
    SEQUENCE_CLASSIFICATION: True,
    TOKEN_CLASSIFICATION: False,
    MULTIPLE_CHOICE: True,
    SPAN: False,
    SPAN_OR_NONE: False,
    EMBEDDING: False,
}

# A pretrained model can do without its pooler: it then answers what does not depend on it.
NEED_POOLER = tuple(name for name, uses in USES_POOLER.items() if uses and name != PRETRAINING)

# These begin the released names of variables in the head of an `AlbertForEmbedding`.
EMBEDDING_PROJECTION = "embedding/projection/"
EMBEDDING_MODULES = "embedding/modules/"
