"""Arrays -> TFRecords of tf.train.Example, without TensorFlow.

Loading TensorFlow takes seconds and hundreds of megabytes in every worker, and building an Example value by
value in Python takes longer than all other steps. Here a compiled loop writes the bytes of a
whole batch. `tests/data_prep/test_create_pretraining_data.py` proves that TensorFlow reads them.

A record is: its length (8 bytes), the length's checksum (4), the Example, the Example's checksum (4). The
checksum is CRC-32C, rotated and shifted ("masked"). The Example is a protocol buffer: tf.train.Example holds
`features` (field 1), a map (field 1) from a name (field 1) to a Feature (field 2), which holds a float_list
(field 2) or an int64_list (field 3), whose values (field 1) are packed.
"""

from collections.abc import Mapping

import numba
import numpy as np

_TAG_1, _TAG_2, _TAG_3 = (field << 3 | 2 for field in (1, 2, 3))  # all with a length in front
_LONGEST_VARINT = 10
_FRAME_BYTES = 16


def encode_examples(
    features: Mapping[str, np.ndarray], lengths: Mapping[str, np.ndarray] | None = None
) -> np.ndarray:
    """The records of a batch, one after the other.

    Args:
      features: name -> int32 or float32 [examples, values]; integers have 64 bits in the record, as all integers
        of tf.train.Example.
      lengths: name -> integers [examples], how many of a feature's values each record gets, from the first on;
        features without an entry get all.

    Returns:
      uint8 [bytes], to be appended to a TFRecord file.

    Raises:
      TypeError: an array is of another type.
    """
    wrong = [name for name, array in features.items() if array.dtype not in (np.int32, np.float32)]
    if wrong:
        raise TypeError(
            f"features must be int32 or float32, got another type for {', '.join(wrong)}"
        )
    names = [name.encode() for name in features]
    # A single array for all features: otherwise numba would compile for each set of features.
    values = np.concatenate([array.view(np.int32) for array in features.values()], axis=1)
    widths = np.array([array.shape[1] for array in features.values()])
    used = np.tile(widths, (len(values), 1))
    for name, lengths_of_name in (lengths or {}).items():
        used[:, list(features).index(name)] = lengths_of_name
    bytes_of_names = sum(len(name) + 8 * _LONGEST_VARINT for name in names)
    most_bytes = _FRAME_BYTES + bytes_of_names + _LONGEST_VARINT * values.shape[1]
    output = np.empty(len(values) * most_bytes, np.uint8)
    size = _encode_records(
        np.frombuffer(b"".join(names), np.uint8),
        np.cumsum([0, *map(len, names)]),
        values,
        np.cumsum([0, *widths])[:-1],
        used,
        np.array([array.dtype == np.float32 for array in features.values()]),
        _CRC_TABLES,
        output,
    )
    return output[:size]


@numba.njit(cache=True)
def _encode_records(names, name_offsets, values, firsts, used, is_float, crc_tables, output):
    end = 0
    for row in range(len(values)):
        lasts = firsts + used[row]
        # Lengths come before the values, so they must be known first.
        value_bytes = _values_bytes(values[row], firsts, lasts, is_float)
        example_bytes = 0
        for feature in range(is_float.size):
            name_bytes = name_offsets[feature + 1] - name_offsets[feature]
            example_bytes += _with_length(_entry_bytes(name_bytes, value_bytes[feature]))
        start = end
        end = _put_frame_start(output, start, _with_length(example_bytes), crc_tables)
        example_start = end
        end = _put_tag(output, end, _TAG_1, example_bytes)
        for feature in range(is_float.size):
            name = names[name_offsets[feature] : name_offsets[feature + 1]]
            list_tag = _TAG_2 if is_float[feature] else _TAG_3
            end = _put_entry_start(output, end, name, value_bytes[feature], list_tag)
            of_feature = values[row, firsts[feature] : lasts[feature]]
            end = _put_values(output, end, of_feature, is_float[feature])
        checksum = _masked_crc(output[example_start:end], crc_tables)
        end = _put_little_endian(output, end, checksum, 4)
    return end


@numba.njit(cache=True)
def _values_bytes(values, firsts, lasts, is_float):
    """Bytes of the values of each feature, int64 [features]."""
    sizes = np.empty(is_float.size, np.int64)
    for feature in range(is_float.size):
        of_feature = values[firsts[feature] : lasts[feature]]
        sizes[feature] = 4 * of_feature.size if is_float[feature] else _varints_bytes(of_feature)
    return sizes


@numba.njit(cache=True)
def _put_values(output, end, values, is_float):
    for value in values:
        if is_float:
            end = _put_little_endian(output, end, np.uint32(value), 4)
        else:
            end = _put_varint(output, end, np.uint64(np.int64(value)))
    return end


# --- Protocol buffers.


@numba.njit(cache=True)
def _varint_bytes(value):
    size = 1
    while value >= np.uint64(128):
        value >>= np.uint64(7)
        size += 1
    return size


@numba.njit(cache=True)
def _varints_bytes(values):
    size = 0
    for value in values:
        # Nearly all values are below 128.
        size += 1 if 0 <= value < 128 else _varint_bytes(np.uint64(np.int64(value)))
    return size


@numba.njit(cache=True)
def _with_length(size):
    """Bytes of a field of `size` bytes: its tag, its length, itself."""
    return 1 + _varint_bytes(np.uint64(size)) + size


@numba.njit(cache=True)
def _entry_bytes(name_bytes, value_bytes):
    """Bytes of an entry of the map: the name and the Feature, a list of packed values."""
    return _with_length(name_bytes) + _with_length(_with_length(_with_length(value_bytes)))


@numba.njit(cache=True)
def _put_entry_start(output, end, name, value_bytes, list_tag):
    """Writes an entry of the map up to its values."""
    end = _put_tag(output, end, _TAG_1, _entry_bytes(name.size, value_bytes))
    end = _put_tag(output, end, _TAG_1, name.size)
    end = _put_bytes(output, end, name)
    end = _put_tag(output, end, _TAG_2, _with_length(_with_length(value_bytes)))
    end = _put_tag(output, end, list_tag, _with_length(value_bytes))
    return _put_tag(output, end, _TAG_1, value_bytes)


@numba.njit(cache=True)
def _put_tag(output, end, tag, size):
    output[end] = tag
    return _put_varint(output, end + 1, np.uint64(size))


@numba.njit(cache=True)
def _put_varint(output, end, value):
    while value >= np.uint64(128):
        output[end] = np.uint8(value & np.uint64(127)) | np.uint8(128)
        value >>= np.uint64(7)
        end += 1
    output[end] = np.uint8(value)
    return end + 1


@numba.njit(cache=True)
def _put_bytes(output, end, values):
    output[end : end + values.size] = values
    return end + values.size


# --- The frame of a record.


def _crc_tables() -> np.ndarray:
    """Tables of CRC-32C, uint32 [8, 256]: what a byte with 0 to 7 bytes behind it adds to the checksum."""
    polynomial = np.uint32(0x82F63B78)  # Castagnoli's, bits reversed
    tables = np.empty((8, 256), np.uint32)
    tables[0] = np.arange(256)
    for _ in range(8):
        low_bit_set = (tables[0] & 1).astype(bool)
        tables[0] = np.where(low_bit_set, tables[0] >> 1 ^ polynomial, tables[0] >> 1)
    for index in range(1, 8):
        tables[index] = tables[0][tables[index - 1] & 255] ^ (tables[index - 1] >> 8)
    return tables


_CRC_TABLES = _crc_tables()


@numba.njit(cache=True)
def _masked_crc(data, tables):
    crc = np.uint32(0xFFFFFFFF)
    size = data.size
    index = 0
    while index + 8 <= size:  # eight bytes at a time, independent of each other
        crc ^= _little_endian(data, index)
        crc = (
            tables[7, crc & 255]
            ^ tables[6, (crc >> 8) & 255]
            ^ tables[5, (crc >> 16) & 255]
            ^ tables[4, crc >> 24]
            ^ tables[3, data[index + 4]]
            ^ tables[2, data[index + 5]]
            ^ tables[1, data[index + 6]]
            ^ tables[0, data[index + 7]]
        )
        index += 8
    while index < size:
        crc = tables[0, (crc ^ data[index]) & 255] ^ np.uint32(crc >> 8)
        index += 1
    crc ^= np.uint32(0xFFFFFFFF)
    rotated = np.uint32(crc >> 15) | np.uint32(crc << 17)
    return np.uint32(rotated + np.uint32(0xA282EAD8))


@numba.njit(cache=True)
def _little_endian(data, index):
    return (
        np.uint32(data[index])
        | np.uint32(data[index + 1]) << np.uint32(8)
        | np.uint32(data[index + 2]) << np.uint32(16)
        | np.uint32(data[index + 3]) << np.uint32(24)
    )


@numba.njit(cache=True)
def _put_little_endian(output, end, value, num_bytes):
    rest = np.uint64(value)
    for index in range(num_bytes):
        output[end + index] = np.uint8(rest & np.uint64(255))
        rest >>= np.uint64(8)
    return end + num_bytes


@numba.njit(cache=True)
def _put_frame_start(output, end, example_bytes, crc_tables):
    after_length = _put_little_endian(output, end, example_bytes, 8)
    checksum = _masked_crc(output[end:after_length], crc_tables)
    return _put_little_endian(output, after_length, checksum, 4)
