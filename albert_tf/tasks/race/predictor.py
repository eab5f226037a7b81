"""Answers questions of RACE with a finished model."""

from collections.abc import Mapping
from typing import Any

from albert_tf.core.errors import UserError
from albert_tf.core.probabilities import softmax
from albert_tf.tasks.predictor import Item, Predictor, best_label, defaults_of
from albert_tf.tasks.race import passages
from albert_tf.tasks.race.settings import RaceConfig

_OF_FEATURES = ("max_seq_length", "max_qa_length")


class ChoicePredictor(Predictor):
    """Chooses the best of some options, whose number may be another than in the training data."""

    expects = '{"article": ..., "question": ..., "options": [two or more texts]}'
    prompts = (
        "article",
        "question",
        *(f"option {letter}" for letter in passages.LETTERS[: passages.NUM_OPTIONS]),
    )
    text_keys = ("article", "context", "question", "options")
    empty = {"article": "", "question": "", "options": [""] * passages.NUM_OPTIONS}
    line_format = "json"
    default_settings = defaults_of(RaceConfig, *_OF_FEATURES)

    def check(self, item: Item) -> passages.RaceQuestion:
        fields: Mapping[str, Any] = item if isinstance(item, Mapping) else {}
        article: Any = fields.get("article", fields.get("context"))
        question: Any = fields.get("question")
        options: Any = fields.get("options")
        if not isinstance(options, list) or not 2 <= len(options) <= len(passages.LETTERS):
            self.refuse(item)
        if not all(isinstance(text, str) for text in (article, question, *options)):
            self.refuse(item)
        try:
            passages.check_filled_length(question, options)
        except ValueError as error:
            raise UserError(str(error)) from None
        return passages.RaceQuestion("", "", article, question, tuple(options), None)

    def answers(self, examples):
        """See `Predictor`: `answer` (a letter), `option`, `probability` and `probabilities` by letter."""
        settings = passages.RaceSettings(self.tokenizer, **self.settings(*_OF_FEATURES))
        logits_BC = self.outputs(passages.make_race_features(settings, examples))["logits"]
        answers = []
        for question, row in zip(examples, logits_BC, strict=True):
            number = len(question.options)  # the row may have more places
            probabilities = softmax(row[:number])
            answer = best_label("answer", passages.LETTERS[:number], probabilities)
            answers.append({**answer, "option": question.options[int(probabilities.argmax())]})
        return answers
