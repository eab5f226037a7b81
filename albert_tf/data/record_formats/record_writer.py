"""Arrays -> TFRecords of tf.train.Example by a compiled loop, as TensorFlow takes seconds to load in every worker.

A record is: its length (8 bytes), the length's checksum (4), the Example, the Example's checksum (4). The checksum is
CRC-32C, rotated and shifted ("masked"). The Example is a protocol buffer: tf.train.Example contains `features` (field
1), a map (field 1) from a name (field 1) to a Feature (field 2), which contains a float_list (field 2) or an int64_list
(field 3), whose values (field 1) are packed.
"""

from collections.abc import Mapping

import numba
import numpy as np

# All of these fields begin with a length.
_TAG_1, _TAG_2, _TAG_3 = (field << 3 | 2 for field in (1, 2, 3))
_LONGEST_VARINT = 10
_FRAME_START_BYTES = 12
_FRAME_BYTES = 16


def encode_examples(
    features: Mapping[str, np.ndarray], lengths: Mapping[str, np.ndarray] | None = None
) -> np.ndarray:
    """The records of a batch, uint8 [bytes], to be appended to a TFRecord file.

    Features are int32 or float32 [examples, values]; integers have 64 bits in the record. Lengths, int [examples], say
    how many of a feature's first values each record gets, if not all.
    """
    names = [name.encode() for name in features]
    # [32, 128], [32, 128], [32, 1] -> [32, 257]: a single array for all features, as numba would compile for each set.
    values = np.concatenate([array.view(np.int32) for array in features.values()], axis=1)
    widths = np.array([array.shape[1] for array in features.values()])
    # [32, 3]: how many values of each feature a record has.
    used = np.tile(widths, (len(values), 1))
    for name, lengths_of_name in (lengths or {}).items():
        used[:, list(features).index(name)] = lengths_of_name
    bytes_of_names = sum(len(name) + 8 * _LONGEST_VARINT for name in names)
    max_bytes = _FRAME_BYTES + bytes_of_names + _LONGEST_VARINT * values.shape[1]
    output = np.empty(len(values) * max_bytes, np.uint8)
    start = _encode_records(
        np.frombuffer(b"".join(names), np.uint8),
        np.cumsum([0, *map(len, names)]),
        values,
        np.cumsum([0, *widths])[:-1],
        used,
        np.array([array.dtype == np.float32 for array in features.values()]),
        output,
    )
    return output[start:]


@numba.njit(cache=True)
def _encode_records(names, name_offsets, values, firsts, used, is_float, output):
    """Fills the output from its end to its start, because lengths stand before their values; returns the start."""
    start = output.size
    for row in range(len(values) - 1, -1, -1):
        start -= 4  # for the Example's checksum
        end = start
        for feature in range(is_float.size - 1, -1, -1):
            feature_end = start
            first = firsts[feature]
            feature_values = values[row, first : first + used[row, feature]]
            start = _put_values(output, start, feature_values, is_float[feature])
            for tag in (_TAG_1, _TAG_2 if is_float[feature] else _TAG_3, _TAG_2):
                start = _put_tag(output, start, tag, feature_end - start)
            name = names[name_offsets[feature] : name_offsets[feature + 1]]
            start -= name.size
            for index in range(name.size):
                output[start + index] = name[index]
            start = _put_tag(output, start, _TAG_1, name.size)
            start = _put_tag(output, start, _TAG_1, feature_end - start)
        start = _put_tag(output, start, _TAG_1, end - start)
        _put_little_endian(output, end, _masked_crc(output[start:end]), 4)
        length_start = start - _FRAME_START_BYTES
        _put_little_endian(output, length_start, end - start, 8)
        checksum = _masked_crc(output[length_start : length_start + 8])
        _put_little_endian(output, length_start + 8, checksum, 4)
        start = length_start
    return start


# --- Protocol buffers: each function writes what ends at a place, and returns where it begins.


@numba.njit(cache=True)
def _put_values(output, start, values, is_float):
    for index in range(values.size - 1, -1, -1):
        value = values[index]
        if is_float:
            start -= 4
            _put_little_endian(output, start, np.uint32(value), 4)
        elif 0 <= value < 128:  # masks, and most numbers
            start -= 1
            output[start] = value
        elif 0 <= value < 1 << 14:  # most tokens
            start -= 2
            output[start] = value & 127 | 128
            output[start + 1] = value >> 7
        elif 0 <= value < 1 << 21:  # nearly all other tokens
            start -= 3
            output[start] = value & 127 | 128
            output[start + 1] = value >> 7 & 127 | 128
            output[start + 2] = value >> 14
        else:
            start = _put_varint(output, start, np.uint64(np.int64(value)))
    return start


@numba.njit(cache=True)
def _put_tag(output, start, tag, size):
    start = _put_varint(output, start, np.uint64(size)) - 1
    output[start] = tag
    return start


@numba.njit(cache=True)
def _put_varint(output, start, value):
    rest = value >> np.uint64(7)
    size = 1
    while rest:
        rest >>= np.uint64(7)
        size += 1
    for index in range(start - size, start):
        output[index] = np.uint8(value & np.uint64(127)) | np.uint8(128)
        value >>= np.uint64(7)
    output[start - 1] &= np.uint8(127)
    return start - size


# --- The frame of a record.


def _crc_tables() -> np.ndarray:
    """The tables of CRC-32C, uint32 [8, 256]: the contribution of a byte, with 0 to 7 bytes after it."""
    polynomial = np.uint32(0x82F63B78)  # Castagnoli's, bits reversed
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ polynomial, table >> 1).astype(np.uint32)
    tables = [table]
    for _ in range(7):
        tables.append(table[tables[-1] & 255] ^ tables[-1] >> 8)
    return np.array(tables, np.uint32)


_CRC_TABLES = _crc_tables()


@numba.njit(cache=True)
def _masked_crc(data):
    crc = np.uint32(0xFFFFFFFF)
    # Eight bytes at a time, whose contributions do not wait for each other ("slicing by 8").
    whole = data.size - data.size % 8
    for start in range(0, whole, 8):
        next_crc = np.uint32(0)
        for index in range(4):
            byte = data[start + index] ^ np.uint8(crc >> np.uint32(8 * index))
            next_crc ^= _CRC_TABLES[7 - index, byte]
        for index in range(4, 8):
            next_crc ^= _CRC_TABLES[7 - index, data[start + index]]
        crc = next_crc
    for byte in data[whole:]:
        crc = _CRC_TABLES[0, (crc ^ byte) & np.uint32(255)] ^ np.uint32(crc >> np.uint32(8))
    crc ^= np.uint32(0xFFFFFFFF)
    rotated = np.uint32(crc >> np.uint32(15)) | np.uint32(crc << np.uint32(17))
    return np.uint32(rotated + np.uint32(0xA282EAD8))


@numba.njit(cache=True)
def _put_little_endian(output, start, value, num_bytes):
    rest = np.uint64(value)
    for index in range(start, start + num_bytes):
        output[index] = np.uint8(rest & np.uint64(255))
        rest >>= np.uint64(8)
