"""Reads the data of SQuAD: files -> windows over contexts."""

import numpy as np

from albert_tf.tasks.sequences import share_of_them
from albert_tf.tasks.source import FILE_FLAGS, Source
from albert_tf.tasks.squad import windows
from albert_tf.tasks.squad.questions import SquadQuestion, read_squad
from albert_tf.tasks.squad.settings import SquadConfig


class SquadSource(Source):
    """SQuAD; items are (number, `SquadQuestion`)."""

    config: SquadConfig
    labels = ("start", "end")
    texts = {"max_query_length": "questions"}
    feature_function = (windows.make_windows, windows.WindowSettings)

    def __init__(self, config: SquadConfig):
        super().__init__(config)
        self.task_name = f"squad{config.version}"
        self.label_columns = ("start_positions", "end_positions")
        if config.version == "2.0":
            self.sequence_names = (*self.sequence_names, "p_mask")
            self.label_columns += ("is_impossible",)

    def length_report(self, table):
        """See `Source`; a context that is too long is not cut but read in several windows."""
        indices = table.columns["question_index"][:, 0]
        if not len(indices):
            return []
        windows = np.bincount(indices)  # number of windows of each question
        share = share_of_them(int(np.sum(windows > 1)), len(windows))
        line = (
            f"{len(windows):,} questions, {share} with a context that needs several windows of"
            f" --max_seq_length={self.config.max_seq_length}; {len(table):,} windows, {windows.max()} at most"
        )
        return [line, *super().length_report(table)]

    def read(self, split: str) -> list[tuple[int, SquadQuestion]] | None:
        flag = FILE_FLAGS[split]
        path = getattr(self.config, flag)
        if not path:
            return None
        questions = read_squad(
            path,
            version=self.config.version,
            flag=flag,
            need_answers=split != "predict",
        )
        return list(enumerate(questions))
