"""Reads the data of tagging: files -> windows over sentences."""

from albert_tf.tasks.source import FILE_FLAGS, Source
from albert_tf.tasks.tagging import conll, windows
from albert_tf.tasks.tagging.settings import TaggingConfig
from albert_tf.tasks.tagging.tag_forms import TagForm


class TaggingSource(Source):
    """Files of tagged words; items are (number, `Sentence`)."""

    config: TaggingConfig
    task_name = "tagging"
    label_columns = ("tag_numbers",)
    name_of_groups = "sentences"
    splits_may_share = False
    form: TagForm | None = None  # of the tags of the training data
    feature_function = (windows.make_windows, windows.WindowSettings)

    def read(self, split: str) -> list[tuple[int, conll.Sentence]] | None:
        """See `Source`; the labels are collected when the training data is read."""
        config = self.config
        flag = FILE_FLAGS[split]
        path = getattr(config, flag)
        if not path:
            return None
        # Without labels, the model has no head for them; this error is raised later.
        need_tags = split == "train" or (split == "eval" and bool(self.labels))
        file = conll.read_tagged(
            path,
            token_column=config.token_column,
            tag_column=config.tag_column,
            need_tags=need_tags,
            flag=flag,
            scheme=config.tag_scheme,
        )
        if split == "train":
            self.form = file.form
        if split == "train" and not self.labels:
            labels = file.labels()
            are_initial = {*labels} <= {*self.initial_labels}
            self.labels = self.initial_labels if are_initial else labels
        sentences = file.labelled(self.labels) if need_tags else file.sentences
        return list(enumerate(sentences))

    def group_of(self, item):
        return item[1].words

    def only(self, items, split="train"):
        """See `Source`; sentences are numbered from 0."""
        return [(number, sentence) for number, (_, sentence) in enumerate(items)]
