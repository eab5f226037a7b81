"""Reads the data of SQuAD: files -> windows over contexts."""

from albert_tf.tasks.source import FILE_FLAGS, Source
from albert_tf.tasks.squad import windows
from albert_tf.tasks.squad.questions import SquadQuestion, read_squad
from albert_tf.tasks.squad.settings import SquadConfig


class SquadSource(Source):
    """SQuAD; items are (number, `SquadQuestion`)."""

    config: SquadConfig
    labels = ("start", "end")
    texts = {"max_query_length": "questions"}
    name_of_groups = "contexts"
    splits_may_share = False
    feature_function = (windows.make_windows, windows.WindowSettings)

    def __init__(self, config: SquadConfig):
        super().__init__(config)
        self.task_name = f"squad{config.version}"
        self.label_columns = ("start_positions", "end_positions")
        if config.version == "2.0":
            self.sequence_names = (*self.sequence_names, "p_mask")
            self.label_columns += ("is_impossible",)

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
            skip_wrong=self.config.skip_wrong_answers,
        )
        return list(enumerate(questions))

    def group_of(self, item):
        return item[1].context

    def only(self, items, split="train"):
        """See `Source`; questions are numbered from 0."""
        return [(number, question) for number, (_, question) in enumerate(items)]
