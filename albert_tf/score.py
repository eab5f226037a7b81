"""Scores lines of standard input with a pretrained model: how likely each text is.

    albert-tf score albert_base < sentences.txt > scores.jsonl

A line is a text, or a JSON object {"text": ...}, whose other keys are copied. For each text, `log_likelihood` is the
sum of the log probabilities of its `tokens`, each masked in turn, and `perplexity` is the exponential of their negative
mean (pseudo-perplexity, Salazar et al. 2020). The sum compares the sentences of a minimal pair, the mean sentences of
different lengths.
"""

import types
from typing import Any

from albert_tf.core import flags
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
        check=lambda item: predictor.row_to_score(item) if item else nothing,
        answered=predictor.score_rows,
        remarks=predictor.remarks,
    )
    answer_lines(scorer, settings.batch_size, settings.input_format)


run = flags.program(main, AnswerSettings, description=__doc__, positional=("model",))

if __name__ == "__main__":
    run()
