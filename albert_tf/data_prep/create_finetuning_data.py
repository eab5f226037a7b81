r"""Turns GLUE, SQuAD, RACE, tags or own files into TFRecords for TPUs.

    albert-tf data create_finetuning_data --task_name=MNLI --data_dir=glue \
        --spm_model_file=spiece.model --output_dir=gs://bucket/mnli
    albert-tf classify --task_name=MNLI --data_dir=glue --train_records=gs://bucket/mnli ...

Training then needs no text. The records contain the same features that the runners make from the text, except that all
are padded to the same length.
"""

import dataclasses
import io
import os
from collections.abc import Mapping

import numpy as np

from albert_tf import __version__
from albert_tf.core import checksums, files, flags
from albert_tf.core.errors import UserError
from albert_tf.core.locks import locks_output_dir
from albert_tf.core.progress import Progress
from albert_tf.core.settings import Settings, changed, setting
from albert_tf.data import record_metadata
from albert_tf.data.feature_table import FeatureTable
from albert_tf.data.record_metadata import METADATA_FILE
from albert_tf.data_prep.pretraining.record_writer import encode_examples
from albert_tf.data_prep.pretraining.settings import MAX_SHARDS
from albert_tf.tasks import registry
from albert_tf.tasks.classification.settings import (
    OWN_TASK,
    UNTRAINED_TASK,
    ClassifierConfig,
    task_key,
)
from albert_tf.tasks.race.settings import RaceConfig
from albert_tf.tasks.settings import FineTuningConfig
from albert_tf.tasks.source import Source
from albert_tf.tasks.squad.settings import SquadConfig
from albert_tf.tasks.tagging.settings import FIRST, LAST, TaggingConfig
from albert_tf.text.settings import TextSettings, VocabularySettings
from albert_tf.text.tokenizer import Tokenizer

LABEL = "create_finetuning_data"
_EXAMPLES_AT_A_TIME = 512


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningDataSettings(VocabularySettings, TextSettings):
    """Which training data becomes records, and how. The settings are those of the runners."""

    task_name: str = changed(
        ClassifierConfig,
        "task_name",
        "",
        help="A GLUE task, `tsv` for files of your own, tagging, squad1.1, squad2.0 or race.",
    )
    output_dir: str = setting("", "Folder for the records.", required=True)
    data_dir: str = changed(
        ClassifierConfig, "data_dir", "", help="Folder of GLUE's or RACE's files, or `tfds`."
    )
    train_file: str = setting(
        "", "Training data of SQuAD, of tagging, or of --task_name=tsv.", input_path=True
    )
    max_seq_length: int = changed(
        FineTuningConfig,
        "max_seq_length",
        0,
        minimum=0,
        help="Maximum number of tokens of a sequence; 0 is the runner's default: 128, 384 for SQuAD, 512 for RACE.",
    )
    text_columns: str = changed(ClassifierConfig, "text_columns", "")
    label_column: str = changed(ClassifierConfig, "label_column", "label")
    kind: str = changed(ClassifierConfig, "kind", "classification")
    label_separator: str = changed(ClassifierConfig, "label_separator", "")
    token_column: str = changed(TaggingConfig, "token_column", FIRST)
    tag_column: str = changed(TaggingConfig, "tag_column", LAST)
    word_separator: str = changed(TaggingConfig, "word_separator", "space")
    doc_stride: int = changed(
        SquadConfig,
        "doc_stride",
        0,
        minimum=0,
        help="Tokens from the start of a window to the next; 0 is the runner's default: 128 for SQuAD, 64 for tagging.",
    )
    max_query_length: int = changed(SquadConfig, "max_query_length", 64)
    level: str = changed(RaceConfig, "level", "all")
    max_qa_length: int = changed(RaceConfig, "max_qa_length", 128)
    num_shards: int = setting(8, "Number of files for the records.", minimum=1, maximum=MAX_SHARDS)
    num_workers: int | None = changed(FineTuningConfig, "num_workers", None)

    def check_with(self, others: Mapping[type[Settings], Settings]) -> None:
        """Checks the settings as the runner of the task does.

        Raises:
          UserError: a setting is wrong; the error names the flag.
        """
        make_source(self)
        self.require_vocabulary()


@locks_output_dir
def main(settings: FineTuningDataSettings) -> None:
    """Reads the training data, makes its features and writes the records."""
    source = make_source(settings)
    files.remove_leftovers(settings.output_dir)
    if files.exists(f"{settings.output_dir}/{METADATA_FILE}"):
        settings.refuse("output_dir", f"={settings.output_dir} holds records: give another folder")
    items = source.read("train")
    tokenizer = Tokenizer.from_file(settings.vocabulary_file, **settings.cleaning)
    table = source.features("train", items, tokenizer)
    if len(table) < settings.num_shards:
        reason = f"={settings.num_shards}: the data gives {len(table):,} examples, too few for as many files"
        settings.refuse("num_shards", reason)
    metadata = write_records(table, source, tokenizer, settings)
    size = sum(shard["bytes"] for shard in metadata["shards"])
    print(
        f"{LABEL}: {len(table):,} examples of {source.config.max_seq_length} tokens, {size:,} bytes in"
        f" {len(metadata['shards'])} files in {settings.output_dir}"
    )


def make_source(settings: FineTuningDataSettings) -> Source:
    """The task's data, with the same settings as in the task's runner.

    Raises:
      UserError: a setting is wrong; the error names the flag.
    """
    name = settings.task_name.lower()
    definition = registry.find(name)
    if definition is None or definition.source is None:
        definition = registry.find(OWN_TASK)  # its settings know every spelling of GLUE's tasks
    if definition.settings is ClassifierConfig:
        if name != OWN_TASK and settings.train_file:
            settings.refuse("train_file", "belongs to --task_name=tsv, tagging and SQuAD")
        if task_key(name) == UNTRAINED_TASK:
            settings.refuse("task_name", f"={settings.task_name}: it has no training data")
    is_in_folder = definition.settings is RaceConfig or (
        definition.settings is ClassifierConfig and name != OWN_TASK
    )
    needed = "data_dir" if is_in_folder else "train_file"
    names = definition.settings.names()
    values = {name: value for name, value in settings.to_dict().items() if name in names}
    values = {
        name: value
        for name, value in values.items()
        if value or name not in ("max_seq_length", "doc_stride")
    }
    if "version" in names:
        values["version"] = name.removeprefix("squad")
    source = registry.resolve(definition.source)(definition.settings(**values))
    if name == OWN_TASK:
        source.config.check_columns()
    if not getattr(settings, needed):
        settings.refuse(needed, f"is required for --task_name={settings.task_name}")
    return source


def write_records(
    table: FeatureTable, source: Source, tokenizer: Tokenizer, settings: FineTuningDataSettings
) -> dict:
    """Distributes the examples over the shards in turn, then writes the metadata; returns the metadata.

    Raises:
      UserError: the folder cannot be written.
    """
    names, length = source.names("train"), source.config.max_seq_length
    shards = []
    with Progress(LABEL, len(table), unit="examples", seconds_between_lines=5) as progress:
        for shard in range(settings.num_shards):
            examples = np.arange(shard, len(table), settings.num_shards)
            name = f"train-{shard:05d}-of-{settings.num_shards:05d}.tfrecord"
            parts = []
            for start in range(0, len(examples), _EXAMPLES_AT_A_TIME):
                chunk = examples[start : start + _EXAMPLES_AT_A_TIME]
                features = table.batch(chunk, length, names)
                flat = {key: value.reshape(len(chunk), -1) for key, value in features.items()}
                parts.append(encode_examples(flat).tobytes())
            content = b"".join(parts)
            _write(settings, name, content)
            file = io.BytesIO(content)
            shards.append(record_metadata.shard_entry(name, len(examples), len(content), file))
            progress.update(sum(written["examples"] for written in shards))
    metadata = {
        "task_name": source.task_name,
        "labels": list(source.labels),
        "max_seq_length": length,
        "choices": table.choices,
        "columns": {name: values.shape[1] for name, values in table.columns.items()},
        "vocab_size": tokenizer.vocab_size,
        "spm_sha256": tokenizer.sha256,
        **tokenizer.cleaning,
        "table_sha256": table.sha256(),
        "settings": settings.to_dict(),
        "version": __version__,
        "shards": shards,
    }
    _write(settings, METADATA_FILE, checksums.json_file(metadata))
    return metadata


def _write(settings: FineTuningDataSettings, name: str, content: bytes) -> None:
    try:
        files.write_bytes(os.path.join(settings.output_dir, name), content)
    except OSError as error:
        raise UserError(
            f"--output_dir={settings.output_dir} cannot be written ({error.strerror})"
        ) from None


def run() -> None:
    """Runs the program with the flags of the command line; ends the process."""
    flags.run(main, FineTuningDataSettings, description=__doc__)


if __name__ == "__main__":
    run()
