"""Labels or scores of texts from a finished model."""

from collections.abc import Mapping, Sequence

from scipy.special import softmax

from albert_tf.data.feature_table import FeatureTable
from albert_tf.tasks.classification.text_pairs import PairSettings, TextExample, make_pair_features
from albert_tf.tasks.predictor import Item, Predictor, bars, best_label


class PairPredictor(Predictor):
    """One text or two an item: "text", "text<TAB>text", or {"text_a": ..., "text_b": ...}."""

    expects = 'a text, two texts with a tab between, or {"text_a": ..., "text_b": ...}'

    def check(self, item: Item) -> TextExample:
        if isinstance(item, str):
            text_a, *rest = item.split("\t")
            text_b = rest[0] if rest else None
            if len(rest) > 1:
                self.refuse(item)
        else:
            values = item if isinstance(item, Mapping) else {}
            text_a, text_b = values.get("text_a", values.get("text")), values.get("text_b")
        if not isinstance(text_a, str) or not isinstance(text_b, str | None):
            self.refuse(item)
        return TextExample("", text_a, text_b)

    def table(self, examples: Sequence[TextExample]) -> FeatureTable:
        """The sequences of examples."""
        settings = PairSettings(self.tokenizer, self.task["max_seq_length"])
        return make_pair_features(settings, examples)


class ClassificationPredictor(PairPredictor):
    """Label and probabilities, or a score."""

    def answers(self, examples):
        """See `Predictor`: `label`, `probability` and `probabilities` by label, or `score`."""
        logits_BC = self.outputs(self.table(examples))["logits"]
        labels = self.model.config.labels
        if len(labels) == 1:
            return [{labels[0]: float(score)} for score in logits_BC[:, 0]]
        return [best_label("label", labels, row) for row in softmax(logits_BC, axis=-1)]

    def shown(self, answer):
        if "probabilities" not in answer:
            return "  ".join(f"{name} {value:.3f}" for name, value in answer.items())
        return bars(answer["probabilities"])
