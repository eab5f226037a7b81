"""The formats of pretraining records. A further one is a file in this package and a line of `FORMATS`."""

from collections.abc import Mapping
from typing import Any

from albert_tf.data import record_metadata
from albert_tf.data.record_formats.base import RecordFormat
from albert_tf.data.record_formats.full import FullFormat
from albert_tf.data.record_formats.packed import PackedFormat

# By the values of --record_format, the default first.
FORMATS: dict[str, RecordFormat] = {
    "packed": PackedFormat(),
    "full": FullFormat(),
}
_WITHOUT_METADATA = "full"  # the original's script writes no metadata


def name_of(metadata: Mapping[str, Any]) -> str:
    """The name of the format of the records in a folder."""
    return metadata.get("record_format", _WITHOUT_METADATA)


def check_metadata(metadata: Mapping[str, Any], source: str) -> None:
    """Raises a UserError if an entry that readers use is missing, of the wrong type or impossible."""
    record_metadata.check(metadata, source)
    if "record_format" in metadata:
        name = name_of(metadata)
        if name not in FORMATS:
            record_metadata.reject(source, "record_format", " or ".join(FORMATS), name)
        FORMATS[name].check(metadata, source)
