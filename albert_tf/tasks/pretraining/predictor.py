"""Uses of a pretrained model without fine-tuning: it fills masks, orders two texts, and embeds and scores texts."""

from collections.abc import Sequence

import numpy as np

from albert_tf.core.errors import UserError, shortened
from albert_tf.core.probabilities import log_softmax, softmax
from albert_tf.tasks.classification.predictor import PairPredictor
from albert_tf.tasks.classification.text_pairs import TextExample
from albert_tf.tasks.embedding.predictor import Embedder
from albert_tf.tasks.predictor import Answer, Item
from albert_tf.text.masked_text import MASK, encode_masked

_NUM_CANDIDATES = 5  # shown for each mask


class PretrainedPredictor(PairPredictor, Embedder):
    """Fills masks, predicts the order of two texts, or embeds a text."""

    expects = (
        f"a text with {MASK} to fill, two texts with a tab between to order, or a text to embed"
    )

    def check(self, item):
        example = super().check(item)
        self._use(example)
        return example

    def answers(self, examples):
        """See `Predictor`.

        For a text with "[MASK]": `masks`, the best tokens for each mask with their probabilities, and `text`, filled
        with the best tokens. For two texts: `in_order`, the probability that they are in the right order, or for a BERT
        `is_next`, that the second follows the first. For any other text: `embedding`, the mean of the tokens' last
        hidden states [D].
        """
        uses = list(map(self._use, examples))
        answers: list[Answer] = [{}] * len(examples)
        for use in dict.fromkeys(uses):
            indices = [index for index, name in enumerate(uses) if name == use]
            examples_of_use = [examples[index] for index in indices]
            match use:
                case "fill":
                    answers_of_use = list(map(self._fill, examples_of_use))
                case "order":
                    answers_of_use = self._order(examples_of_use)
                case _:
                    answers_of_use = self._embed(examples_of_use)
            for index, answer in zip(indices, answers_of_use, strict=True):
                answers[index] = answer
        return answers

    def _use(self, example: TextExample) -> str:
        """What is done with an example: "order", "fill" or "embed"; a UserError if the model cannot do it."""
        if example.text_b is not None:
            for prefix in ("cls/seq_relationship/", "bert/pooler/"):
                self._check_head("order two texts", prefix)
            return "order"
        if MASK in example.text_a:
            self._check_head(f"fill {MASK}", "cls/predictions/")
            limit = self.task_settings["max_seq_length"]
            ids = encode_masked(self.tokenizer, example.text_a)
            kept = self.tokenizer.cut(ids, limit - 2)
            if ids.count(self.tokenizer.mask_id) > kept.count(self.tokenizer.mask_id):
                text = shortened(example.text_a)
                side = "first" if self.tokenizer.rules.truncation_side == "right" else "last"
                raise UserError(f"a {MASK} is not among the {side} {limit} tokens of {text}")
            return "fill"
        return "embed"

    def _check_head(self, use: str, prefix: str) -> None:
        """Raises a UserError if the model's file has no values for a head."""
        if any(name.startswith(prefix) for name in self._untrained):
            raise UserError(f"this model cannot {use}: its file has no values for {prefix}*")

    def _order(self, examples: Sequence[TextExample]) -> list[Answer]:
        logits_B2 = self.outputs(self.table(examples))["sentence_order_logits"]
        name = "is_next" if self.model.config.sentence_task == "nsp" else "in_order"
        return [{name: float(row[0])} for row in softmax(logits_B2)]

    def _embed(self, examples: Sequence[TextExample]) -> list[Answer]:
        return [{"embedding": row.tolist()} for row in self.vectors_of_table(self.table(examples))]

    def vectors_of_table(self, table):
        """The mean of the last hidden states of each sequence's tokens, float32 [sequences, D]."""
        hidden_BLD = self.outputs(table)["sequence_output"]
        rows = zip(hidden_BLD, table.lengths, strict=True)
        return np.stack([hidden_LD[:length].mean(axis=0) for hidden_LD, length in rows])

    def _fill(self, example: TextExample) -> Answer:
        """The best tokens for each mask of a text, and the text with the best of all."""
        tokenizer = self.tokenizer
        ids_of_text = encode_masked(tokenizer, example.text_a)
        self.report.count_length("max_seq_length", len(ids_of_text) + 2)
        kept = tokenizer.cut(ids_of_text, self.task_settings["max_seq_length"] - 2)
        ids = np.array([tokenizer.cls_id, *kept, tokenizer.sep_id], np.int32)
        self.report.tokens.add(ids, tokenizer)

        # 12 tokens, of which 2 are masks -> the scores of all tokens for each of them, [2, 30000].
        (positions_P,) = np.nonzero(ids == tokenizer.mask_id)
        outputs = self.compute({"input_ids": ids[None], "masked_lm_positions": positions_P[None]})
        logits_PV = outputs["masked_lm_logits"][0]

        # [2, 30000] -> [2, 5]
        best_PK = np.argsort(-logits_PV, axis=-1, kind="stable")[:, :_NUM_CANDIDATES]
        masks = []
        for best, probabilities in zip(best_PK, softmax(logits_PV), strict=True):
            candidates = [
                {"token": tokenizer.id_to_token(id), "probability": float(probabilities[id])}
                for id in best
            ]
            masks.append(candidates)
        ids[positions_P] = best_PK[:, 0]
        return {"text": tokenizer.decode(ids.tolist()), "masks": masks}

    def score(self, texts):
        """See `Predictor`; source: Salazar et al. 2020, Masked Language Model Scoring, sections 2 and 3."""
        self._check_head("score texts", "cls/predictions/")
        return self.score_rows([self.row_to_score(text) for text in texts])

    def score_rows(self, rows: Sequence[list[int]]) -> list[Answer]:
        """The scores of texts that `row_to_score` has converted."""
        for row in rows:
            self.report.tokens.add(np.array(row), self.tokenizer)
        # 2 texts of 3 and 2 tokens -> 5 pairs of a text and the position that is masked, the shorter text first.
        masked = [
            (row, position)
            for row in sorted(range(len(rows)), key=lambda row: len(rows[row]))
            for position in range(1, len(rows[row]) - 1)
        ]
        # [5] -> [2]: the sum over the tokens of each text.
        sums = np.zeros(len(rows))
        for begin in range(0, len(masked), self.batch_size):
            batch = np.array(masked[begin : begin + self.batch_size])
            np.add.at(sums, batch[:, 0], self._log_probabilities(rows, batch))

        counts = [len(row) - 2 for row in rows]  # 0 for an empty line
        answers: list[Answer] = []
        for log_likelihood, count in zip(sums.tolist(), counts, strict=True):
            perplexity = float(np.exp(-log_likelihood / count)) if count else None
            answers.append(
                {"log_likelihood": log_likelihood, "tokens": count, "perplexity": perplexity}
            )
        return answers

    def row_to_score(self, text: Item, *, may_be_empty: bool = False) -> list[int]:
        """The ids of a text to score, with [CLS] and [SEP]; an unusable text is an error."""
        example = super().check(text)
        limit = self.task_settings["max_seq_length"]
        ids = self.tokenizer.encode(example.text_a)
        least = 0 if may_be_empty else 1
        if example.text_b is not None or not least <= len(ids) <= limit - 2:
            expected = f"a text to score has 1 to {limit - 2} tokens and no tab"
            raise UserError(f"{expected}; got {len(ids)} tokens in {shortened(text)}")
        return [self.tokenizer.cls_id, *ids, self.tokenizer.sep_id]

    def _log_probabilities(self, rows: Sequence[list[int]], masked_B2: np.ndarray) -> np.ndarray:
        """The log probability, float [B], of each token that is masked: int [B, 2], the indices of row and token."""
        # [5, 2] -> [5, 5]: the ids of 3 tokens with [CLS] and [SEP], three times, and those of 2 tokens twice.
        positions_B1 = masked_B2[:, 1:]
        lengths = np.array([len(rows[row]) for row in masked_B2[:, 0]])
        ids_BL = np.zeros([len(masked_B2), lengths.max()], np.int32)
        for index, row in enumerate(masked_B2[:, 0]):
            ids_BL[index, : lengths[index]] = rows[row]
        mask_BL = (np.arange(ids_BL.shape[1]) < lengths[:, None]).astype(np.int32)

        # [5, 1]: the token in whose place [MASK] is put.
        truths_B1 = np.take_along_axis(ids_BL, positions_B1, axis=1)
        np.put_along_axis(ids_BL, positions_B1, self.tokenizer.mask_id, axis=1)

        # [5, 30000] -> [5]
        features: dict[str, np.ndarray] = {"input_ids": ids_BL, "input_mask": mask_BL}
        features["masked_lm_positions"] = positions_B1.astype(np.int32)
        logits_BV = self.compute(features)["masked_lm_logits"][:, 0].astype(np.float64)
        return np.take_along_axis(log_softmax(logits_BV), truths_B1, axis=1)[:, 0]
