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

# These begin the released names of variables in the head of an `AlbertForEmbedding`.
EMBEDDING_PROJECTION = "embedding/projection/"
EMBEDDING_MODULES = "embedding/modules/"
