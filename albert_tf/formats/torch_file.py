"""Reads weights that `torch.save` wrote (`pytorch_model.bin`), without torch and without executing code in the file.

Such a file contains the values of the tensors and a pickle, a small program that describes the tensors. Python's
reader of pickles calls any function that the program names. Here, it gets only the instructions and names that a table
of tensors needs, and makes plain records of them. Everything else is an error.

There are two layouts: a zip archive of stored members (torch 1.6 and newer), and several pickles followed by the
values.
"""

import io
import math
import mmap
import os
import pickle
import pickletools
import zipfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line

_ZIP_START = b"PK\x03\x04"
_PICKLE_START = b"\x80"
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_MAX_INSTRUCTIONS = 200_000  # a tensor takes about 40
_LONGEST_REASON = 200  # characters of a library's error, which may contain parts of the file
_MAX_DIMENSIONS = 32  # NumPy's own limit before version 2

_BFLOAT16 = "BFloat16Storage"
# NumPy types of torch's storages; a bfloat16 is the upper half of a float32.
_TYPES = {"Float": "<f4", "Double": "<f8", "Half": "<f2", "BFloat16": "<u2", "Long": "<i8"}
_TYPES |= {"Int": "<i4", "Short": "<i2", "Char": "i1", "Byte": "u1", "Bool": "?"}
_DTYPES = {f"{name}Storage": np.dtype(dtype) for name, dtype in _TYPES.items()}


class _Storage(NamedTuple):
    """A flat array of values; tensors are views of it."""

    key: str
    type_name: str
    num_values: int

    @property
    def num_bytes(self) -> int:
        return self.num_values * _DTYPES[self.type_name].itemsize


class _StorageType(NamedTuple):
    """The name of a class of torch, as it is in a pickle."""

    name: str


class _Tensor(NamedTuple):
    """The description of a tensor in a pickle; offset, shape and strides count values."""

    storage: Any
    offset: Any
    shape: Any
    strides: Any


class _Table(dict):
    """A dictionary of a pickle; rejects nested keys, whose hash may never end."""

    def __init__(self, items: Iterable = ()):
        super().__init__()
        for key, value in items:
            self[key] = value

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(key) not in (str, int):
            raise TypeError("a dictionary with names or numbers as keys was expected")
        super().__setitem__(key, value)


class _Refused(Exception):
    """An error in a file; the message follows the file's name."""


def read(path: str) -> dict[str, np.ndarray]:
    """The tensors in a file.

    Args:
      path: a file that contains only names and tensors, as `torch.save(model.state_dict(), path)` writes it; a path
        with :// is read through TensorFlow.

    Returns:
      Arrays by name, with the types of the file, except that bfloat16 becomes float32. They are read-only views;
      tensors that share values in the file also share them here.

    Raises:
      UserError: the file cannot be read, is damaged, is of another kind, or would execute code.
    """
    files.check_regular(path)
    try:
        with io.BytesIO(files.read_bytes(path)) if "://" in path else open(path, "rb") as file:
            is_zip = file.read(len(_ZIP_START)) == _ZIP_START
            return _read_zip(file) if is_zip else _read_legacy(file)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except _Refused as error:
        raise UserError(f"{path}: {error}") from None


def float32_of_bfloat16(bits: np.ndarray) -> np.ndarray:
    """Converts bfloat16 values, given as uint16 arrays of any shape, to float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


# --- The two layouts ---


def _read_zip(file) -> dict[str, np.ndarray]:
    size = file.seek(0, os.SEEK_END)
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            # Uncompressed members cannot be larger than the file, so a small file cannot fill the memory.
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise _Refused("has compressed members, which torch.save does not write")
            if sum(member.file_size for member in members) > size:
                raise _Refused("damaged: its members claim to be longer than the file")
            pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
            if len(pickles) != 1:
                raise _Refused("no file of torch.save: a zip archive without data.pkl")
            folder = pickles[0].removesuffix("data.pkl")
            has_order = folder + "byteorder" in archive.namelist()
            order = archive.read(folder + "byteorder") if has_order else b"little"
            if order not in (b"little", b"big"):
                raise _Refused("damaged: its byte order is neither little nor big")
            tensors = _tensors(_run(io.BytesIO(archive.read(pickles[0]))))
            data = {key: archive.read(f"{folder}data/{key}") for key in _storages(tensors)}
            return _arrays(tensors, data, order.decode())
    except _Refused:
        raise
    except Exception as error:  # `zipfile` may raise any exception for damaged headers
        raise _Refused(f"damaged zip archive ({first_line(error)[:_LONGEST_REASON]})") from None


def _read_legacy(file) -> dict[str, np.ndarray]:
    # The file is mapped, so that a false length in a pickle does not allocate memory.
    in_memory = isinstance(file, io.BytesIO)
    if not file.seek(0, os.SEEK_END):
        raise _Refused("is empty")
    file.seek(0)
    stream = file if in_memory else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    content = memoryview(file.getbuffer() if in_memory else stream)
    if content[:1] != _PICKLE_START or _run(stream) != _LEGACY_MAGIC:
        raise _Refused(f"no file of torch.save: it begins with {bytes(content[:12])!r}")
    _run(stream)  # version of the layout
    _run(stream)  # the machine that wrote it; values are always little-endian
    tensors = _tensors(_run(stream))
    storages, keys = _storages(tensors), _run(stream)
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise _Refused("damaged: there is no list of storages behind the tensors")
    if sorted(keys) != sorted(storages):
        raise _Refused("damaged: its list of storages does not fit its tensors")
    data, start = {}, stream.tell()
    for key in keys:
        # The number of values is stored before them.
        end = start + 8 + storages[key].num_bytes
        number = int.from_bytes(content[start : start + 8], "little")
        if end > len(content) or number != storages[key].num_values:
            raise _Refused(f"damaged: the values of storage {key[:20]!r} are not all there")
        data[key] = content[start + 8 : end]
        start = end
    return _arrays(tensors, data, "little")


# --- From records to arrays ---


def _tensors(loaded: Any) -> dict[str, _Tensor]:
    """The content of a pickle; raises `_Refused` if it is not names and valid tensors."""
    if not isinstance(loaded, _Table) or not loaded:
        found = "none" if isinstance(loaded, _Table) else type(loaded).__name__
        raise _Refused(f"expected names and tensors, got {found}")
    for name, tensor in loaded.items():
        if not isinstance(name, str) or not isinstance(tensor, _Tensor):
            entry = name[:60] if isinstance(name, str) else "a number"
            hint = "save model.state_dict()"
            raise _Refused(f"expected names and tensors alone, found {entry!r}; {hint}")
        _check(name, tensor)
    return loaded


def _check(name: str, tensor: _Tensor) -> None:
    """Raises `_Refused` if a tensor is not a view of its storage."""
    storage, offset, shape, strides = tensor
    start = f"damaged: the tensor {name[:60]!r}"
    sound = all(map(isinstance, (storage, shape, strides), (_Storage, tuple, tuple)))
    if not (sound and len(shape) == len(strides) <= _MAX_DIMENSIONS):
        raise _Refused(f"{start} has no storage, shape and strides")
    if not all(type(number) is int and number >= 0 for number in (offset, *shape, *strides)):
        raise _Refused(f"{start} has a size, stride or offset below 0")
    if any(size >= 2**31 for size in shape):
        raise _Refused(f"{start} is longer than any parameter")
    end = offset
    if 0 not in shape:
        end += 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    # A tensor with more values than its storage would repeat them and fill the memory; no parameter does this.
    if max(end, math.prod(shape)) > storage.num_values:
        raise _Refused(f"{start} does not fit into the {storage.num_values} values of its storage")


def _storages(tensors: Mapping[str, _Tensor]) -> dict[str, _Storage]:
    """The storages of tensors by key."""
    storages: dict[str, _Storage] = {}
    for tensor in tensors.values():
        storage = tensor.storage
        if storages.setdefault(storage.key, storage) != storage:
            raise _Refused(f"damaged: it describes storage {storage.key[:20]!r} in two ways")
    return storages


def _arrays(tensors: Mapping[str, _Tensor], data: Mapping[str, Any], order: str) -> dict:
    """Arrays that are views of the bytes of their storages."""
    values = {}
    for key, storage in _storages(tensors).items():
        if len(data[key]) != storage.num_bytes:
            size = f"{len(data[key])} bytes, not {storage.num_bytes}"
            raise _Refused(f"damaged: storage {key[:20]!r} has {size}")
        dtype = _DTYPES[storage.type_name].newbyteorder("<" if order == "little" else ">")
        values[key] = np.frombuffer(data[key], dtype)
        if storage.type_name == _BFLOAT16:
            values[key] = float32_of_bfloat16(values[key])
    views = {}
    for name, (storage, offset, shape, strides) in tensors.items():
        start = values[storage.key][offset:]
        # Along an axis with one value, or in an array without values, strides have no meaning.
        is_used = [size > 1 and 0 not in shape for size in shape]
        strides = [
            stride * start.itemsize * used for stride, used in zip(strides, is_used, strict=True)
        ]
        views[name] = np.lib.stride_tricks.as_strided(start, shape, strides, writeable=False)
    return views


# --- Pickles ---

# What stands for the functions and classes that a table of tensors names: nothing of torch is called.
_STAND_INS: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): _Table,
    ("torch._utils", "_rebuild_tensor"): lambda *arguments: _Tensor(*arguments[:4]),
    ("torch._utils", "_rebuild_tensor_v2"): lambda *arguments: _Tensor(*arguments[:4]),
    ("torch._utils", "_rebuild_parameter"): lambda *arguments: arguments[0],
    **{("torch", name): _StorageType(name) for name in _DTYPES},
}
_INSTRUCTIONS = {
    *("PROTO", "FRAME", "STOP", "MARK", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"),
    *("GET", "BINGET", "LONG_BINGET", "INT", "LONG", "LONG1", "LONG4", "BININT", "BININT1"),
    *("BININT2", "FLOAT", "BINFLOAT", "NONE", "NEWTRUE", "NEWFALSE", "UNICODE", "BINUNICODE"),
    *("SHORT_BINUNICODE", "BINUNICODE8", "STRING", "BINSTRING", "SHORT_BINSTRING"),
    *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "LIST", "APPEND"),
    *("APPENDS", "EMPTY_DICT", "DICT", "SETITEM", "SETITEMS", "GLOBAL", "STACK_GLOBAL"),
    *("BINPERSID", "REDUCE", "BUILD"),
}
_OPCODES = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}
_Reader: Any = (
    pickle._Unpickler
)  # the one in Python; that in C cannot be restricted to instructions


def _run(stream) -> Any:
    """The content of a pickle; afterwards, the stream is at the end of the pickle."""
    try:
        return _Unpickler(stream).load()
    except _Refused:
        raise
    except Exception as error:  # `pickle` may raise any exception for a damaged pickle
        raise _Refused(f"damaged pickle ({first_line(error)[:_LONGEST_REASON]})") from None


class _Unpickler(_Reader):
    """The reader of pickles with the instructions and names that a table of tensors needs."""

    def __init__(self, stream):
        super().__init__(stream)
        self.dispatch = self  # asks `__getitem__` for the function of each instruction
        self._num_instructions = 0

    def __getitem__(self, code: int) -> Callable:
        name = _OPCODES[code]
        self._num_instructions += 1
        if self._num_instructions > _MAX_INSTRUCTIONS:
            raise _Refused(f"its pickle has more than {_MAX_INSTRUCTIONS:,} instructions")
        if name not in _INSTRUCTIONS:
            reason = "which no table of tensors needs"
            raise _Refused(f"its pickle has the instruction {name}, {reason}")
        own = {"EMPTY_DICT": _Unpickler.make_table, "DICT": _Unpickler.make_table_of_items}
        own["BUILD"] = _Unpickler.drop_attributes
        return own.get(name) or _Reader.dispatch[code]

    def find_class(self, module: str, name: str) -> Any:
        """What stands for a function or class; raises `_Refused` for one that tables of tensors do not need."""
        if (module, name) not in _STAND_INS:
            reason = "which no table of tensors needs; nothing of it was run"
            raise _Refused(f"asks for {f'{module}.{name}'[:80]!r}, {reason}")
        return _STAND_INS[module, name]

    def persistent_load(self, pid: Any) -> _Storage:
        """The record of a storage."""
        kind, storage_type, key, _, num_values, *view = pid
        sound = kind == "storage" and isinstance(key, str) and view in ([], [None])
        sound = sound and isinstance(storage_type, _StorageType)
        if not (sound and type(num_values) is int and 0 <= num_values < 2**60):
            raise TypeError("a storage is described in a way that is unknown")
        return _Storage(key, storage_type.name, num_values)

    def make_table(self) -> None:
        """An empty dictionary."""
        self.append(_Table())

    def make_table_of_items(self) -> None:
        """A dictionary of the keys and values since the last mark."""
        items = self.pop_mark()
        self.append(_Table(zip(items[::2], items[1::2], strict=True)))

    def drop_attributes(self) -> None:
        """Attributes of an object; those of torch's table of tensors are not needed."""
        self.stack.pop()
        if not isinstance(self.stack[-1], _Table):
            raise TypeError("attributes of what has none")
