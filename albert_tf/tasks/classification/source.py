"""Reads the data of classification tasks: files -> features."""

from albert_tf.tasks.classification import glue, text_pairs, tsv
from albert_tf.tasks.classification.settings import ClassifierConfig
from albert_tf.tasks.source import FILE_FLAGS, OFFICIAL_SPLITS, Source, read_rows


class TextSource(Source):
    """A GLUE task (its row of the table is `glue`), or a user's own files; items are `TextExample`s."""

    config: ClassifierConfig
    splits_may_share = False
    feature_function = (text_pairs.make_text_features, text_pairs.TextFeatureSettings)

    def __init__(self, config: ClassifierConfig):
        super().__init__(config)
        self.glue = config.glue
        self.is_regression = config.is_regression
        self.task_name = config.task_key
        if self.glue and not self.glue.label_column:
            self.task_name = "mnli"  # AX has no training data; a model trained on MNLI answers it
        if self.is_regression:
            self.labels = ("score",)
            self.label_columns = ("label_scores",)
        elif self.glue:
            self.labels = self.glue.labels
        self.is_multi_label = config.is_multi_label
        has_one_text = self.glue is None and len(config.text_column_names) == 1
        self.may_have_windows = has_one_text and not config.windows
        if self.is_multi_label:
            self.label_columns = ("label_sets",)

    def read(self, split: str) -> list[text_pairs.TextExample] | None:
        """See `Source`; the labels of a user's own task are collected when its training data is read."""
        config = self.config
        flag = FILE_FLAGS[split]
        path = getattr(config, flag)
        if self.glue and path:
            return glue.read_glue_file(self.glue, path, "test", source=f"--{flag}={path}")
        if self.glue:
            if split == "eval" and not self.glue.label_column:
                return None
            return glue.read_glue(self.glue, config.data_dir, OFFICIAL_SPLITS[split])
        if not path:
            return None
        is_labelled = split == "train" or (split == "eval" and bool(self.labels))
        examples = tsv.read_own(
            path,
            text_columns=config.text_column_names,
            label_columns=config.label_column_names if is_labelled else (),
            flag=flag,
            skip_unlabeled=config.skip_unlabeled,
        )
        if not is_labelled:  # unknown labels are refused later
            return examples
        separator = config.separator if self.is_multi_label else ""
        if not separator and not self.is_regression:
            tsv.check_labelled(examples, path)
        if not self.labels and len(config.label_column_names) > 1:
            self.labels = tuple(config.label_column_names)
        if not self.labels:
            self.labels = tsv.find_labels(examples, path, separator, self.initial_labels)
        labels = () if self.is_regression else self.labels
        return tsv.with_values(examples, path, labels, separator)

    def group_of(self, item):
        return (item.text_a, item.text_b)

    def kind_of(self, item):
        return None if self.is_regression else item.label

    def rows(self, items):
        """See `Source`; all columns of a file of one's own; of several groups (MNLI), the group of each id."""
        if self.glue:
            frame = super().rows(items)
            groups = [item.group for item in items]
            return frame.assign(group=groups) if len({*groups}) > 1 else frame
        return read_rows(self.config.predict_file, "predict_file")

    def length_report(self, table, model_limit=None):
        """See `Source`; texts that are read in windows are not cut."""
        if not self.config.windows:
            return super().length_report(table, model_limit)
        lines = super().length_report(table)
        return [line.replace("cut at", "read in windows of") for line in lines]
