"""SQuAD 1.1 and 2.0: spans of a context, or no answer (original run_squad_v1.py, run_squad_v2.py, squad_utils.py)."""

import json
import math
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.model.heads import AlbertForSpan, AlbertForSpanOrNone
from albert_tf.tasks.finetuning import FineTuningTask, example_weights
from albert_tf.tasks.settings import FineTuningRunConfig
from albert_tf.tasks.squad import answers as squad_answers
from albert_tf.tasks.squad.settings import SquadConfig
from albert_tf.tasks.squad.source import SquadSource
from albert_tf.training.losses import Ratio, binary_cross_entropy, cross_entropy
from albert_tf.training.task import Features, Files, Outputs, Predictions

THRESHOLD_FILE = "predictions/null_threshold.json"
_V1_OUTPUTS = ("start_logits", "end_logits")
_V2_OUTPUTS = (
    *("start_top_log_probs", "start_top_index", "end_top_log_probs", "end_top_index"),
    "cls_logits",
)
_WORST = 20


class SquadTask(FineTuningTask):
    """Answers questions by a part of their context.

    Args:
      config: settings of the task.
      run: what is asked for, and the model to start from.

    Raises:
      UserError: the files, the model and the flags do not fit together.
    """

    source_class = SquadSource
    best_metric = "f1"
    shown_metrics = (
        *("loss", "exact_match", "exact", "f1"),
        *("best_threshold", "exact_threshold_0", "f1_threshold_0"),
    )

    def __init__(self, config: SquadConfig, run: FineTuningRunConfig):
        self.has_null = config.version == "2.0"
        self.model_class = AlbertForSpanOrNone if self.has_null else AlbertForSpan
        self._last_answers = None
        self._known_spans = []
        super().__init__(config, run)
        self.questions = {
            split: [question for _, question in items] for split, items in self.items.items()
        }

    # --- Training ---

    def loss_counts(self, features: Features) -> Mapping[str, tf.Tensor]:
        """The number of windows."""
        count = tf.reduce_sum(example_weights(features))
        return {"span_loss": count, **({"answerable_loss": count} if self.has_null else {})}

    def losses(self, outputs: Outputs, features: Features) -> Mapping[str, Ratio]:
        """Half of the cross entropies of start and end; for 2.0 half of that of having no answer as well.

        Source: original squad_utils.py:1640-1664. There, padding takes part in the softmax of SQuAD 1.1; here it does
        not, so that the length that a batch is padded to changes nothing.
        """
        weights = example_weights(features)
        if self.has_null:
            starts, ends = outputs["start_log_probs"], outputs["end_log_probs"]
        else:
            is_padding = 1.0 - tf.cast(features["input_mask"], tf.float32)
            starts = outputs["start_logits"] - 1e30 * is_padding
            ends = outputs["end_logits"] - 1e30 * is_padding
        start = cross_entropy(starts, features["start_positions"][:, 0], weights)
        end = cross_entropy(ends, features["end_positions"][:, 0], weights)
        found = {"span_loss": Ratio(0.5 * (start.sum + end.sum), start.count)}
        if self.has_null:
            label = features["is_impossible"][:, 0]
            loss = binary_cross_entropy(outputs["cls_logits"], label, weights)
            found["answerable_loss"] = Ratio(0.5 * loss.sum, loss.count)
        return found

    def predictions(self, outputs: Outputs, features: Features) -> Mapping[str, tf.Tensor]:
        """Scores of starts and ends of every window, and of having no answer."""
        names = _V2_OUTPUTS if self.has_null else _V1_OUTPUTS
        return {name: outputs[name] for name in names}

    # --- Answers ---

    def _spans(self, members: Sequence[Predictions], split: str) -> squad_answers.Spans:
        """Candidate answers of one model, or the combined ones of several."""
        found = [self._spans_of(member, split) for member in members]
        return found[0] if len(found) == 1 else squad_answers.combine(found)

    def _spans_of(self, member: Predictions, split: str) -> squad_answers.Spans:
        """Candidate answers of one model; kept while members of an ensemble are chosen."""
        for known_split, known, spans in self._known_spans:
            if known is member and known_split == split:
                return spans
        spans = self._find_spans(member, split)
        if self.config.ensemble:
            self._known_spans.append((split, member, spans))
        return spans

    def _find_spans(self, member: Predictions, split: str) -> squad_answers.Spans:
        config, table = self.config, self.tables[split]
        if self.has_null:
            return squad_answers.candidate_spans_v2(
                table,
                **{name: member[name] for name in _V2_OUTPUTS},
                max_answer_length=config.max_answer_length,
            )
        return squad_answers.candidate_spans_v1(
            table,
            *(member[name] for name in _V1_OUTPUTS),
            n_best_size=config.n_best_size,
            max_answer_length=config.max_answer_length,
        )

    def _answers(self, members: Sequence[Predictions], split: str):
        """Each question's best answers, and its null odds; kept, as several files are made of the same ones."""
        asked = (split, list(members))
        if self._last_answers and _is_same(self._last_answers[0], asked):
            return self._last_answers[1]
        spans = self._spans(members, split)
        answers = squad_answers.best_answers(self.questions[split], spans, self.config.n_best_size)
        self._last_answers = (asked, (answers, spans.null_odds))
        return answers, spans.null_odds

    def evaluate(self, members: Sequence[Predictions]) -> Mapping[str, float]:
        """Exact match and F1 in percent.

        For SQuAD 2.0 `exact` and `f1` are those at the best threshold, which the paper and the original report;
        `exact_threshold_0`, and `exact_threshold_given` if --null_threshold is a number, stand beside.
        """
        return self._scores(*self._answers(members, "eval"))

    def _scores(self, answers, null_odds) -> dict[str, float]:
        questions = self.questions["eval"]
        best = squad_answers.predictions(questions, answers)
        if not self.has_null:
            return squad_answers.score_v1(questions, best)
        given = self.config.null_threshold
        by_threshold = squad_answers.score_v2_by_threshold(
            questions,
            best,
            squad_answers.null_odds_by_id(questions, null_odds),
            None if given == "best" else float(given),
        )
        found = dict(by_threshold.pop("threshold_best"))
        found["best_threshold"] = found.pop("threshold")
        for name, scores in by_threshold.items():
            for key in ("exact", "f1", "HasAns_f1", "NoAns_f1"):
                if key in scores:
                    found[f"{key}_{name}"] = scores[key]
        return found

    def collapsed(self, members: Sequence[Predictions]) -> str:
        """Says so if every question has the same answer."""
        answers, null_odds = self._answers(members, "eval")
        threshold = self._scores(answers, null_odds).get("best_threshold", math.inf)
        texts = squad_answers.predictions(
            self.questions["eval"], answers, null_odds if self.has_null else None, threshold
        )
        found = set(texts.values())
        if len(found) > 1 or len(texts) == 1:
            return ""
        what = f"the answer {found.pop()!r}" if any(found) else "no answer"
        return f"the model gives {what} to all of the {len(texts):,} questions"

    # --- Files ---

    def evaluation_files(self, members: Sequence[Predictions]) -> Files:
        """The answers for the development file, the worst of them, and the best threshold."""
        answers, null_odds = self._answers(members, "eval")
        scores = self._scores(answers, null_odds)
        threshold = scores.get("best_threshold", math.inf)
        found = {
            **self._answer_files("eval_", "eval", answers, null_odds, threshold),
            "predictions/eval_errors.txt": self._error_report(answers, null_odds, threshold),
            **self._raw_file(members, "eval"),
        }
        if self.has_null:
            found[THRESHOLD_FILE] = json.dumps({"null_threshold": threshold}) + "\n"
        return found

    def prediction_files(self, members: Sequence[Predictions]) -> Files:
        """The answers to the questions of --predict_file."""
        answers, null_odds = self._answers(members, "predict")
        threshold = math.inf
        if self.has_null:
            threshold, origin = self._threshold()
            print(f"null threshold {threshold:.4f} {origin}", flush=True)
        return {
            **self._answer_files("", "predict", answers, null_odds, threshold),
            **self._raw_file(members, "predict"),
        }

    def task_settings(self):
        """See `FineTuningTask`; with what answers are chosen by."""
        config = self.config
        chosen_by = {
            "max_answer_length": config.max_answer_length,
            "n_best_size": config.n_best_size,
        }
        if self.has_null:
            chosen_by["null_threshold"], _ = self._threshold()
        return {**super().task_settings(), **chosen_by}

    def _threshold(self) -> tuple[float, str]:
        """The one given, or the best one of the run's or the initial checkpoint's evaluation; and where it is from."""
        if self.config.null_threshold != "best":
            return float(self.config.null_threshold), "from --null_threshold"
        for folder in (self.run.output_dir, self.run.init_checkpoint):
            path = f"{folder}/{THRESHOLD_FILE}"
            if folder and tf.io.gfile.exists(path):
                with tf.io.gfile.GFile(path) as file:
                    return json.load(file)["null_threshold"], f"from {path}"
        return 0.0, "as there is no evaluation that chose one; see --null_threshold"

    def _answer_files(self, prefix: str, split: str, answers, null_odds, threshold) -> Files:
        questions = self.questions[split]
        odds = null_odds if self.has_null else None
        contents = {
            "predictions": squad_answers.predictions(questions, answers, odds, threshold),
            "nbest_predictions": squad_answers.nbest_predictions(questions, answers),
        }
        if self.has_null:
            contents["null_odds"] = squad_answers.null_odds_by_id(questions, null_odds)
        return {
            f"predictions/{prefix}{name}.json": json.dumps(content, indent=1, ensure_ascii=False)
            + "\n"
            for name, content in contents.items()
        }

    def _error_report(self, answers, null_odds, threshold: float) -> str:
        """How often an answer was given where there is one, and the wrong answers that the model was surest of."""
        questions = self.questions["eval"]
        odds = null_odds if self.has_null else None
        texts = squad_answers.predictions(questions, answers, odds, threshold)
        given = np.array([bool(texts[question.id]) for question in questions])
        has_answer = np.array([bool(question.answers) for question in questions])
        lines = [f"{'':24}{'answered':>10}{'left empty':>12}"]
        for title, group in (("has an answer", has_answer), ("has none", ~has_answer)):
            lines.append(f"{title:24}{(group & given).sum():>10}{(group & ~given).sum():>12}")
        wrong = []
        for question, best in zip(questions, answers, strict=True):
            references = {squad_answers.normalize_answer(text) for text, _ in question.answers}
            said = squad_answers.normalize_answer(texts[question.id])
            if said not in (references or {""}):
                wrong.append((-best[0].probability, question, texts[question.id]))
        wrong.sort(key=lambda error: error[0])
        lines.append(
            f"\nThe {min(_WORST, len(wrong))} surest of {len(wrong):,} wrong answers to {len(questions):,} questions\n"
        )
        for probability, question, text in wrong[:_WORST]:
            wanted = " | ".join(dict.fromkeys(text for text, _ in question.answers)) or "(none)"
            lines.append(f"{question.id}: {question.question}")
            lines.append(f"  answered {text or '(none)'} ({-probability:.3f}), true {wanted}")
        return "\n".join(lines) + "\n"


def _is_same(first: tuple, second: tuple) -> bool:
    """Whether two (split, members) are the very same objects."""
    (split, members), (other_split, others) = first, second
    return split == other_split and list(map(id, members)) == list(map(id, others))
