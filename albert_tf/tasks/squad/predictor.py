"""Answers questions of SQuAD with a finished model."""

from collections.abc import Mapping, Sequence

from albert_tf.core.errors import UserError, first_line
from albert_tf.core.probabilities import sigmoid
from albert_tf.data.feature_table import FeatureTable
from albert_tf.model.numbers import NUM_ENDS, NUM_STARTS
from albert_tf.tasks.predictor import Answer, Predictor, defaults_of
from albert_tf.tasks.squad import answers as squad_answers
from albert_tf.tasks.squad.questions import SquadQuestion, entries_of
from albert_tf.tasks.squad.settings import SquadConfig
from albert_tf.tasks.squad.windows import WindowSettings, make_windows

_OF_WINDOWS = ("max_seq_length", "doc_stride", "max_query_length")
_OF_ANSWERS = ("n_best_size", "max_answer_length")


class SpanPredictor(Predictor):
    """Finds the part of a context that answers a question."""

    expects = '{"question": ..., "context": ...}'
    prompts = ("context", "question")
    empty = {"question": "", "context": ""}
    line_format = "json"
    default_settings = defaults_of(SquadConfig, *_OF_WINDOWS, *_OF_ANSWERS)

    def check(self, item):
        fields = item if isinstance(item, Mapping) else {}
        question = fields.get("question")
        context = fields.get("context")
        if not isinstance(question, str) or not isinstance(context, str):
            self.refuse(item)
        return SquadQuestion("", question, context)

    def num_windowed_characters(self, example):
        return len(example.context)

    def unnested(self, frame, source):
        """See `Predictor`: a row for each question of a file in the format of SQuAD."""
        import pandas as pd

        if not {"data", "paragraphs"} & {*frame.columns}:
            return frame
        rows = frame.to_dict("records")
        if "data" in frame.columns:
            rows = [article for row in rows for article in row["data"]]
        try:
            questions = [
                {"id": entry["id"], "question": entry["question"], "context": context}
                for entry, context in entries_of(rows)
            ]
        except (KeyError, TypeError, AttributeError) as error:
            reason = f"is not in the format of SQuAD ({first_line(error)})"
            raise UserError(f"{source}: {reason}") from None
        places = [f"question {question['id']}" for question in questions]
        return pd.DataFrame(questions, index=places)

    def answers(self, examples):
        """`answer` (or "" for 2.0), `probability`, `start` and `end` in the context, and for 2.0 `null_odds`."""
        table = self.table(examples)
        settings = self.settings(*_OF_ANSWERS)
        spans = squad_answers.candidate_spans(table, self.outputs(table), **settings)
        answers: list[Answer] = [
            {
                "answer": best.text,
                "probability": best.probability if best.text else 0.0,  # an empty context
                "start": best.start_char,
                "end": best.end_char,
            }
            for best, *_ in squad_answers.best_answers(examples, spans, settings["n_best_size"])
        ]
        for answer, null_odds in zip(answers, spans.null_odds.tolist(), strict=False):
            if squad_answers.has_no_answer(null_odds, self.task_settings["null_threshold"]):
                answer.update(answer="", probability=float(sigmoid(null_odds)), start=0, end=0)
            answer["null_odds"] = null_odds
        return answers

    def table(self, examples: Sequence[SquadQuestion]) -> FeatureTable:
        """The windows of examples."""
        settings = WindowSettings(self.tokenizer, **self.settings(*_OF_WINDOWS))
        return make_windows(settings, list(enumerate(examples)))


class SpanOrNonePredictor(SpanPredictor):
    """Finds the part of a context that answers a question, or says that there is none."""

    default_settings = {**SpanPredictor.default_settings, "null_threshold": 0.0}
    sequence_names = (*SpanPredictor.sequence_names, "p_mask")
    shortest_length = max(NUM_STARTS, NUM_ENDS)  # the candidates are different positions
