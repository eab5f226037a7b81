"""Reads the data of RACE: files -> one sequence per option."""

from albert_tf.tasks.race import passages
from albert_tf.tasks.race.settings import RaceConfig
from albert_tf.tasks.source import OFFICIAL_SPLITS, Source


class RaceSource(Source):
    """RACE; items are `RaceQuestion`s."""

    config: RaceConfig
    labels = ("A", "B", "C", "D")
    task_name = "race"
    texts = {
        "max_seq_length": "questions with passage and option",
        "max_qa_length": "questions with option",
    }
    feature_function = (passages.make_race_features, passages.RaceSettings)

    def read(self, split: str) -> list[passages.RaceQuestion]:
        folder, level = self.config.data_dir, self.config.level
        official, is_known = OFFICIAL_SPLITS[split], split != "predict"
        return passages.read_race(folder, official, level=level, need_answers=is_known)
