"""The formats of pretraining records. A further one is a file in this package and a line of `FORMATS`."""

from collections.abc import Mapping
from typing import Any

from albert_tf.data.record_formats.base import RecordFormat
from albert_tf.data.record_formats.full import FullFormat
from albert_tf.data.record_formats.packed import PackedFormat

# By the values of --record_format, the default first.
FORMATS: dict[str, RecordFormat] = {"packed": PackedFormat(), "full": FullFormat()}
_WITHOUT_METADATA = "full"  # the original's script writes no metadata


def name_of(metadata: Mapping[str, Any]) -> str:
    """The name of the format of the records in a folder."""
    return metadata.get("record_format", _WITHOUT_METADATA)
