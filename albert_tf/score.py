"""Scores lines of standard input with a pretrained model: how likely each text is.

    albert-tf score albert_base < sentences.txt > scores.jsonl

A line is a text, or a JSON object {"text": ...}, whose other keys are copied. For each text, `log_likelihood` is the
sum of the log probabilities of its `tokens`, each masked in turn, and `perplexity` is the exponential of their negative
mean (pseudo-perplexity, Salazar et al. 2020). The sum compares the sentences of a minimal pair, the mean sentences of
different lengths. A text without tokens has a sum of 0 and no perplexity.
"""

import types
from collections.abc import Sequence
from typing import Any

from albert_tf import functions
from albert_tf.core import flags
from albert_tf.core.callable_modules import make_callable
from albert_tf.core.program import Program
from albert_tf.predict import AnswerSettings, answer_lines


def main(settings: AnswerSettings) -> None:
    """Scores the lines of standard input."""
    predictor: Any = settings.load_predictor()
    predictor.score([])  # an error if the model cannot
    tokenizer = predictor.tokenizer
    nothing = [tokenizer.cls_id, tokenizer.sep_id]
    scorer: Any = types.SimpleNamespace(
        expects="a text",
        text_keys=predictor.text_keys,
        empty="",
        line_format="text",
        check=lambda item: predictor.row_to_score(item, may_be_empty=True) if item else nothing,
        answered=predictor.score_rows,
        remarks=predictor.remarks,
    )
    answer_lines(scorer, settings.batch_size, settings.input_format)


def scores(settings: AnswerSettings, texts: Sequence[str]) -> list[dict[str, Any]]:
    """For each text a dictionary with `log_likelihood`, `tokens` and `perplexity`."""
    return settings.load_predictor().score(texts)


program = Program(
    main=main,
    settings_classes=(AnswerSettings,),
    description=__doc__,
    positional=("model",),
    answers=scores,
    lines="texts",
)
run = flags.in_shell(program)
make_callable(__name__, lambda: functions.function_of("score"))

if __name__ == "__main__":
    run()
