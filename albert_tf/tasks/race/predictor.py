"""Answers questions of RACE with a finished model."""

from collections.abc import Mapping
from typing import Any

from scipy.special import softmax

from albert_tf.core.errors import UserError
from albert_tf.tasks.predictor import Item, Predictor, best_label, defaults_of
from albert_tf.tasks.race import passages
from albert_tf.tasks.race.settings import RaceConfig

_OF_FEATURES = ("max_seq_length", "max_qa_length")


class ChoicePredictor(Predictor):
    """Chooses the best of four options."""

    expects = '{"article": ..., "question": ..., "options": [four texts]}'
    prompts = ("article", "question", *(f"option {letter}" for letter in passages.ANSWERS))
    text_keys = ("article", "context", "question", "options")
    empty = {"article": "", "question": "", "options": [""] * passages.NUM_OPTIONS}
    line_format = "json"
    default_settings = defaults_of(RaceConfig, *_OF_FEATURES)

    def check(self, item: Item) -> passages.RaceQuestion:
        values: Mapping[str, Any] = item if isinstance(item, Mapping) else {}
        article: Any = values.get("article", values.get("context"))
        question: Any = values.get("question")
        options: Any = values.get("options")
        texts = [article, question, *(options if isinstance(options, list) else [])]
        is_text = [isinstance(text, str) for text in texts]
        if len(texts) != 2 + passages.NUM_OPTIONS or not all(is_text):
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
        for question, row in zip(examples, softmax(logits_BC, axis=-1), strict=True):
            answer = best_label("answer", passages.ANSWERS, row)
            answers.append({**answer, "option": question.options[int(row.argmax())]})
        return answers
