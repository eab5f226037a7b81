"""Reads the data of RACE: files -> one sequence per option."""

import dataclasses
from collections.abc import Sequence

from albert_tf.data.feature_table import FeatureTable
from albert_tf.tasks.race import passages
from albert_tf.tasks.race.settings import RaceConfig
from albert_tf.tasks.source import OFFICIAL_SPLITS, Source
from albert_tf.text.tokenizer import Tokenizer


class RaceSource(Source):
    """RACE, or data in its layout; items are `RaceQuestion`s.

    The labels are the letters of the options of the training data.
    """

    config: RaceConfig
    task_name = "race"
    texts = {
        "max_seq_length": "questions with passage and option",
        "max_qa_length": "questions with option",
    }
    feature_function = (passages.make_race_features, passages.RaceSettings)

    def read(self, split: str) -> list[passages.RaceQuestion]:
        folder = self.config.data_dir
        level = self.config.level
        official = OFFICIAL_SPLITS[split]
        is_known = split != "predict"
        questions = passages.read_race(folder, official, level=level, need_answers=is_known)
        if not self.labels:
            self.labels = tuple(passages.LETTERS[: passages.most_options(questions)])
        return questions

    def features(
        self, split: str, items: Sequence[passages.RaceQuestion], tokenizer: Tokenizer
    ) -> FeatureTable:
        """See `Source`; all questions of a split have as many sequences."""
        most = passages.most_options(items)
        equal = [dataclasses.replace(question, num_places=most) for question in items]
        return super().features(split, equal, tokenizer)
