"""The names of the models of `heads.py` and of the parts of their heads, for code that runs without TensorFlow."""

from albert_tf.model.config import AlbertConfig

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

# Whether the outputs of a model depend on the encoder's pooler, so that training changes it; see `uses_pooler`.
USES_POOLER = {
    PRETRAINING: True,
    SEQUENCE_CLASSIFICATION: True,
    TOKEN_CLASSIFICATION: False,
    MULTIPLE_CHOICE: True,
    SPAN: False,
    SPAN_OR_NONE: False,
    EMBEDDING: False,
}


# These begin the released names of variables in the head of an `AlbertForEmbedding`.
EMBEDDING_PROJECTION = "embedding/projection/"
EMBEDDING_MODULES = "embedding/modules/"


def uses_pooler(model_class: str, config: AlbertConfig) -> bool:
    """Whether the outputs of a model depend on its pooler; the configuration of a classifier says what it reads.

    False for the classes of users, which say it themselves.
    """
    return USES_POOLER.get(model_class, False) and not reads_vectors(model_class, config)


def needs_pooler(model_class: str, config: AlbertConfig) -> bool:
    """Whether a model has no outputs without its pooler; a pretrained one then answers what does not depend on it."""
    return model_class != PRETRAINING and uses_pooler(model_class, config)


def reads_vectors(model_class: str, config: AlbertConfig) -> bool:
    """Whether a model is a classifier of the vectors of texts (`classifier_pooling`), which other libraries lack."""
    return model_class == SEQUENCE_CLASSIFICATION and config.classifier_vector is not None


def architecture_of(model_class: str, config: AlbertConfig) -> str:
    """The class of the transformers library that computes what a model of ours does; "" if there is none."""
    return "" if reads_vectors(model_class, config) else ARCHITECTURES[model_class]
