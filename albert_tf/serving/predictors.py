"""Finished models put to use: items in, answers out, for every kind of model.

An item is a text, or a dictionary such as {"question": ..., "context": ...}; an answer is a dictionary of plain values
that JSON can hold. The features are made by the same functions as in training, so that answers are the runners'.
"""

import abc
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.core.errors import UserError
from albert_tf.data.feature_table import FeatureTable, evaluation_batches
from albert_tf.formats import pretrained
from albert_tf.model.heads import AlbertModel
from albert_tf.serving import usage
from albert_tf.tasks.classification.text_pairs import PairSettings, TextExample, make_pair_features
from albert_tf.tasks.race.passages import (
    NUM_OPTIONS,
    RaceQuestion,
    RaceSettings,
    make_race_features,
)
from albert_tf.tasks.squad import answers as squad_answers
from albert_tf.tasks.squad.windows import SquadQuestion, WindowSettings, make_windows
from albert_tf.text.masked_text import MASK, encode_masked
from albert_tf.text.tokenizer import Tokenizer

Item = str | Mapping[str, Any]
Answer = dict[str, Any]

_SEQUENCES = ("input_ids", "segment_ids")
_LENGTHS_ARE_MULTIPLES_OF = 32  # so that few graphs are built
_PAIR_SEPARATOR = "\t"


def load_predictor(
    path: str,
    *,
    spm_model_file: str = "",
    do_lower_case: bool | None = None,
    max_seq_length: int = 0,
    batch_size: int = 32,
) -> "Predictor":
    """What answers with the model that a path holds.

    Args:
      path: see `pretrained.read_weights`.
      spm_model_file: its vocabulary, if none came with it.
      do_lower_case: whether text is lower-cased; None takes what the model's folder says, true if it says nothing.
      max_seq_length: most pieces of a sequence; 0 takes what the model was fine-tuned with, or its longest.
      batch_size: sequences that the model gets at a time.

    Raises:
      UserError: there is no such model, or no vocabulary for it, or the length is above the model's.
    """
    weights = pretrained.read_weights(path)
    tokenizer = usage.tokenizer_of(weights, spm_model_file, do_lower_case)
    task = usage.task_settings_of(weights, max_seq_length)
    kinds = {cls.model_class: cls for cls in _subclasses(Predictor) if hasattr(cls, "model_class")}
    model, report = pretrained.build_model(weights)
    return kinds[weights.model_class](model, tokenizer, task, batch_size, report.initialised)


def _subclasses(cls: type) -> list[type]:
    return [found for sub in cls.__subclasses__() for found in (sub, *_subclasses(sub))]


class Predictor(abc.ABC):
    """Answers of one kind of model.

    Args:
      model: the model.
      tokenizer: its vocabulary.
      task: settings that its features depend on, `max_seq_length` among them.
      batch_size: sequences that the model gets at a time.
      untrained: released names of variables that have no trained values.

    Attributes:
      expects: what an item is, in words.
    """

    expects: str
    sequence_names: tuple[str, ...] = _SEQUENCES

    def __init__(
        self,
        model: AlbertModel,
        tokenizer: Tokenizer,
        task: Mapping[str, Any],
        batch_size: int,
        untrained: Sequence[str] = (),
    ):
        self.model = model
        self.tokenizer = tokenizer
        self.task = task
        self._batch_size = batch_size
        self._untrained = untrained
        self._run = tf.function(self._call, autograph=False)

    @abc.abstractmethod
    def predict(self, items: Sequence[Item]) -> list[Answer]:
        """The answers to items, in their order.

        Raises:
          UserError: an item is not what is expected.
        """

    @abc.abstractmethod
    def check(self, item: Item) -> None:
        """Checks an item.

        Raises:
          UserError: it is not what is expected.
        """

    @abc.abstractmethod
    def shown(self, answer: Answer) -> str:
        """An answer for a person to read."""

    def _call(self, features):
        outputs = dict(self.model(features, training=False))
        outputs.pop("all_layers", None)
        return outputs

    def _refuse(self, item: Item) -> None:
        raise UserError(f"expected {self.expects}; got {_shortened(item)}")

    def _outputs(self, table: FeatureTable) -> dict[str, np.ndarray]:
        """What the model gives for every example, in the table's order; padded to the longest example."""
        longest = int(table.lengths.max())
        limit = max(longest, self.task["max_seq_length"])
        buckets = sorted(
            {min(limit, end) for end in range(32, limit + 32, _LENGTHS_ARE_MULTIPLES_OF)}
        )
        found: dict[str, list] = {}
        examples = []
        for batch in evaluation_batches(table.lengths, buckets, self._batch_size):
            is_real = batch.examples >= 0
            features = table.batch(np.maximum(batch.examples, 0), batch.length, self.sequence_names)
            for name, values in self._run(features).items():
                found.setdefault(name, []).append(values.numpy()[is_real])
            examples.append(batch.examples[is_real])
        order = np.argsort(np.concatenate(examples), kind="stable")
        return {name: _stacked(parts)[order] for name, parts in found.items()}


def _stacked(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Arrays [B, L, ...] or [B, ...] of several batches in one, filled up to the longest L."""
    if parts[0].ndim < 2:
        return np.concatenate(parts)
    longest = max(part.shape[1] for part in parts)
    fill = [[(0, 0), (0, longest - part.shape[1]), *[(0, 0)] * (part.ndim - 2)] for part in parts]
    return np.concatenate([np.pad(part, widths) for part, widths in zip(parts, fill, strict=True)])


class PairPredictor(Predictor):
    """One text or two an item: "text", "text<TAB>text", or {"text_a": ..., "text_b": ...}."""

    expects = 'a text, two texts with a tab between, or {"text_a": ..., "text_b": ...}'

    def check(self, item):
        """See `Predictor`."""
        self.example(item)

    def example(self, item: Item) -> TextExample:
        """The texts of an item.

        Raises:
          UserError: it is not what is expected.
        """
        if isinstance(item, str):
            text_a, *rest = item.split(_PAIR_SEPARATOR)
            text_b = rest[0] if rest else None
            if len(rest) > 1:
                self._refuse(item)
        else:
            text_a, text_b = item.get("text_a", item.get("text")), item.get("text_b")
        if not isinstance(text_a, str) or not isinstance(text_b, str | None):
            self._refuse(item)
        return TextExample("", text_a, text_b)

    def table(self, items: Sequence[Item]) -> FeatureTable:
        """The sequences of items."""
        settings = PairSettings(self.tokenizer, self.task["max_seq_length"])
        return make_pair_features(settings, [self.example(item) for item in items])


class ClassificationPredictor(PairPredictor):
    """Label and probabilities, or a score."""

    model_class = "AlbertForSequenceClassification"

    def predict(self, items):
        """See `Predictor`: `label`, `probability` and `probabilities` by label, or `score`."""
        logits_BC = self._outputs(self.table(items))["logits"]
        labels = self.model.config.labels
        if len(labels) == 1:
            return [{labels[0]: float(score)} for score in logits_BC[:, 0]]
        return [_chosen("label", labels, row) for row in _softmax(logits_BC)]

    def shown(self, answer):
        """See `Predictor`."""
        if "probabilities" not in answer:
            return "  ".join(f"{name} {value:.3f}" for name, value in answer.items())
        return _bars(answer["probabilities"])


class ChoicePredictor(Predictor):
    """The best of four options."""

    model_class = "AlbertForMultipleChoice"
    expects = '{"article": ..., "question": ..., "options": [four texts]}'

    def check(self, item):
        """See `Predictor`."""
        self._question(item)

    def _question(self, item: Item) -> RaceQuestion:
        values = item if isinstance(item, Mapping) else {}
        article = values.get("article", values.get("context"))
        question, options = values.get("question"), values.get("options")
        texts = [article, question, *(options if isinstance(options, list) else [])]
        if len(texts) != 2 + NUM_OPTIONS or not all(isinstance(text, str) for text in texts):
            self._refuse(item)
        return RaceQuestion("", "", article, question, tuple(options), None, "", 0)

    def predict(self, items):
        """See `Predictor`: `answer` (a letter), `option`, `probability` and `probabilities` by letter."""
        names = ("max_seq_length", "max_qa_length")
        settings = RaceSettings(self.tokenizer, **_some(self.task, names))
        questions = [self._question(item) for item in items]
        logits_BC = self._outputs(make_race_features(settings, questions))["logits"]
        answers = []
        for question, row in zip(questions, _softmax(logits_BC), strict=True):
            answer = _chosen("answer", self.model.config.labels, row)
            answers.append({**answer, "option": question.options[int(row.argmax())]})
        return answers

    def shown(self, answer):
        """See `Predictor`."""
        return f"{answer['answer']}: {answer['option']}\n{_bars(answer['probabilities'])}"


class SpanPredictor(Predictor):
    """The part of a context that answers a question."""

    model_class = "AlbertForSpan"
    expects = '{"question": ..., "context": ...}'

    def check(self, item):
        """See `Predictor`."""
        self._question(0, item)

    def _question(self, index: int, item: Item) -> SquadQuestion:
        values = item if isinstance(item, Mapping) else {}
        question, context = values.get("question"), values.get("context")
        if not isinstance(question, str) or not isinstance(context, str):
            self._refuse(item)
        return SquadQuestion(str(index), question, context)

    def predict(self, items):
        """See `Predictor`: `answer`, its `probability`, and `start` and `end`, characters of the context."""
        questions, table = self.questions(items), self.table(items)
        spans = self._spans(table, self._outputs(table))
        best = squad_answers.best_answers(questions, spans, self.task["n_best_size"])
        return [self._answer(index, found[0], spans) for index, found in enumerate(best)]

    def questions(self, items: Sequence[Item]) -> list[SquadQuestion]:
        """The questions of items.

        Raises:
          UserError: an item is not what is expected.
        """
        return [self._question(index, item) for index, item in enumerate(items)]

    def table(self, items: Sequence[Item]) -> FeatureTable:
        """The windows of items."""
        names = ("max_seq_length", "doc_stride", "max_query_length")
        settings = WindowSettings(self.tokenizer, **_some(self.task, names))
        return make_windows(settings, (0, self.questions(items)))

    def _spans(self, table: FeatureTable, outputs: Mapping[str, np.ndarray]) -> squad_answers.Spans:
        return squad_answers.candidate_spans_v1(
            table,
            outputs["start_logits"],
            outputs["end_logits"],
            **_some(self.task, ("n_best_size", "max_answer_length")),
        )

    def _answer(self, index: int, best: squad_answers.Answer, spans: squad_answers.Spans) -> Answer:
        return {
            "answer": best.text,
            "probability": float(best.probability),
            "start": best.start_char,
            "end": best.end_char,
        }

    def shown(self, answer):
        """See `Predictor`."""
        text = answer["answer"] or "(no answer)"
        return f"{text}  ({answer['probability']:.3f})"


class SpanOrNonePredictor(SpanPredictor):
    """The part of a context that answers a question, or none."""

    model_class = "AlbertForSpanOrNone"
    sequence_names = (*_SEQUENCES, "p_mask")

    def _spans(self, table, outputs):
        names = ("start_top_log_probs", "start_top_index", "end_top_log_probs", "end_top_index")
        return squad_answers.candidate_spans_v2(
            table,
            **{name: outputs[name] for name in (*names, "cls_logits")},
            max_answer_length=self.task["max_answer_length"],
        )

    def _answer(self, index, best, spans):
        """As of `SpanPredictor`, with `null_odds`; the answer is empty where they are above the threshold."""
        found = super()._answer(index, best, spans)
        odds = float(spans.null_odds[index])
        if odds > self.task["null_threshold"]:
            found |= {"answer": "", "start": 0, "end": 0}
        return {**found, "null_odds": odds}


class PretrainedPredictor(PairPredictor):
    """What a pretrained model can do by itself: fill masks, tell which of two texts comes first, embed."""

    model_class = "AlbertForPreTraining"
    expects = (
        f"a text with {MASK} to fill, two texts with a tab between to order, or a text to embed"
    )
    num_candidates = 5

    def check(self, item):
        """See `Predictor`."""
        self._kind(self.example(item))

    def predict(self, items):
        """See `Predictor`.

        For a text with "[MASK]": `masks`, the best pieces of each with their probabilities, and `text`, filled with
        the best. For two texts: `in_order`, the probability that the first comes first. For another text:
        `embedding`, the mean of the pieces' last hidden states [D].
        """
        kinds = [self._kind(self.example(item)) for item in items]
        answers: list[Answer] = [{}] * len(items)
        for kind in sorted(set(kinds)):
            indices = [index for index, found in enumerate(kinds) if found == kind]
            found = getattr(self, f"_{kind}")([items[index] for index in indices])
            for index, answer in zip(indices, found, strict=True):
                answers[index] = answer
        return answers

    def _kind(self, example: TextExample) -> str:
        if example.text_b is not None:
            return self._with_head("order", "cls/seq_relationship/")
        if MASK in example.text_a:
            return self._with_head("fill", "cls/predictions/")
        return "embed"

    def _with_head(self, kind: str, prefix: str) -> str:
        """The kind of an item, if the model has what it needs.

        Raises:
          UserError: the head came without values.
        """
        if any(name.startswith(prefix) for name in self._untrained):
            what = {"order": "order two texts", "fill": f"fill {MASK}"}[kind]
            raise UserError(f"this model cannot {what}: its file has no values for {prefix}*")
        return kind

    def _order(self, items: Sequence[Item]) -> list[Answer]:
        logits_B2 = self._outputs(self.table(items))["sentence_order_logits"]
        return [{"in_order": float(row[0])} for row in _softmax(logits_B2)]

    def _embed(self, items: Sequence[Item]) -> list[Answer]:
        table = self.table(items)
        hidden_BLD = self._outputs(table)["sequence_output"]
        lengths = table.lengths
        return [
            {"embedding": hidden_LD[:length].mean(axis=0).tolist()}
            for hidden_LD, length in zip(hidden_BLD, lengths, strict=True)
        ]

    def _fill(self, items: Sequence[Item]) -> list[Answer]:
        return [self._filled(self.example(item).text_a) for item in items]

    def _filled(self, text: str) -> Answer:
        tokenizer = self.tokenizer
        ids = encode_masked(tokenizer, text)[: self.task["max_seq_length"] - 2]
        ids = np.array([tokenizer.cls_id, *ids, tokenizer.sep_id], np.int32)
        (positions_P,) = np.nonzero(ids == tokenizer.mask_id)
        if not len(positions_P):
            raise UserError(
                f"{MASK} stands behind the first {self.task['max_seq_length']} pieces of {_shortened(text)}"
            )
        outputs = self.model({"input_ids": ids[None], "masked_lm_positions": positions_P[None]})
        masks = []
        for logits_V, position in zip(
            outputs["masked_lm_logits"][0].numpy(), positions_P, strict=True
        ):
            best = np.argsort(-logits_V, kind="stable")[: self.num_candidates]
            row = _softmax(logits_V)
            masks.append(
                [{"piece": tokenizer.id_to_piece(id), "probability": float(row[id])} for id in best]
            )
            ids[position] = best[0]
        return {"text": tokenizer.decode(ids), "masks": masks}

    def shown(self, answer):
        """See `Predictor`."""
        if "in_order" in answer:
            return _bars({"in order": answer["in_order"], "swapped": 1 - answer["in_order"]})
        if "embedding" in answer:
            values = answer["embedding"]
            first = " ".join(f"{value:.3f}" for value in values[:6])
            return f"{len(values)} numbers: {first} ..."
        parts = [
            _bars({entry["piece"]: entry["probability"] for entry in candidates})
            for candidates in answer["masks"]
        ]
        return "\n\n".join([answer["text"], *parts])


def _some(values: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: values[name] for name in names}


def _softmax(logits: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def _chosen(name: str, labels: Sequence[str], probabilities: np.ndarray) -> Answer:
    best = int(probabilities.argmax())
    return {
        name: labels[best],
        "probability": float(probabilities[best]),
        "probabilities": dict(zip(labels, probabilities.tolist(), strict=True)),
    }


def _bars(probabilities: Mapping[str, float]) -> str:
    """One line a name, the most probable first."""
    width = max(map(len, probabilities))
    lines = []
    for name, value in sorted(probabilities.items(), key=lambda entry: -entry[1]):
        lines.append(f"  {name:<{width}}  {value:.3f}  {'#' * round(30 * value)}".rstrip())
    return "\n".join(lines)


def _shortened(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
