"""Reads weights that `torch.save` wrote (`pytorch_model.bin`), without torch and without executing code in the file.

Such a file contains the values of the tensors and a pickle, a small program that describes the tensors. Python's own
reader of pickles calls any function that the program names. The interpreter here accepts only the instructions and
names that a table of tensors needs, and turns them into plain records. Everything else is an error.

There are two layouts: a zip archive of stored members (torch 1.6 and newer), and several pickles followed by the
values.
"""

import io
import math
import mmap
import os
import pickletools
import zipfile
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from albert_tf.core import files
from albert_tf.core.errors import UserError, first_line

_ZIP_START = b"PK\x03\x04"
_PICKLE_START = b"\x80"
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_MAX_INSTRUCTIONS = 1_000_000  # a tensor takes about 40
_LONGEST_REASON = 200  # characters of a library's error, which may contain parts of the file
_MAX_DIMENSIONS = 32  # NumPy's own limit before version 2

_BFLOAT16 = "BFloat16Storage"
# NumPy types of torch's storages; a bfloat16 is the upper half of a float32.
_TYPES = {"Float": "<f4", "Double": "<f8", "Half": "<f2", "BFloat16": "<u2", "Long": "<i8"}
_TYPES |= {"Int": "<i4", "Short": "<i2", "Char": "i1", "Byte": "u1", "Bool": "?"}
_DTYPES = {f"{name}Storage": np.dtype(dtype) for name, dtype in _TYPES.items()}


class _Global(NamedTuple):
    """A function or class that a pickle names."""

    module: str
    name: str


_ORDERED_DICT = _Global("collections", "OrderedDict")
_TENSOR = _Global("torch._utils", "_rebuild_tensor")
_TENSOR_V2 = _Global("torch._utils", "_rebuild_tensor_v2")
_PARAMETER = _Global("torch._utils", "_rebuild_parameter")
_ALLOWED = {_ORDERED_DICT, _TENSOR, _TENSOR_V2, _PARAMETER}
_ALLOWED |= {_Global("torch", name) for name in _DTYPES}


class _Storage(NamedTuple):
    """A flat array of values; tensors are views of it."""

    key: str
    type_name: str
    num_values: int

    @property
    def num_bytes(self) -> int:
        return self.num_values * _DTYPES[self.type_name].itemsize


class _Tensor(NamedTuple):
    """The description of a tensor in a pickle; offset, shape and strides count values."""

    storage: Any
    offset: Any
    shape: Any
    strides: Any


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
    if not isinstance(loaded, dict):
        raise _Refused(f"expected names and tensors, got {type(loaded).__name__}")
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


# --- The interpreter ---


def _run(stream) -> Any:
    """The result of a pickle; afterwards, the stream is at the end of the pickle."""
    machine = _Machine()
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
            if opcode.name == "STOP":
                return machine.stack.pop()
            if count > _MAX_INSTRUCTIONS:
                raise _Refused(f"its pickle has more than {_MAX_INSTRUCTIONS:,} instructions")
            machine.do(opcode.name, argument)
    except (ValueError, LookupError, TypeError) as error:
        raise _Refused(f"damaged pickle ({first_line(error)[:_LONGEST_REASON]})") from None
    raise AssertionError  # genops raises ValueError for a pickle without STOP


class _Machine:
    """Stack and memory of the interpreter: numbers, strings, containers and the records above. No function is called.

    The methods `do_...` are the instructions, with their names in `pickletools`.
    """

    def __init__(self) -> None:
        self.stack: list = []
        self._marks: list[int] = []
        self._memory: dict[int, Any] = {}

    def do(self, name: str, argument: Any) -> None:
        """Executes an instruction by its name in `pickletools`."""
        if name in _PUSHING:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _MAKING:
            self.stack.append(_MAKING[name]())
        elif name in _REMEMBERING:
            self._memory[len(self._memory) if argument is None else argument] = self.stack[-1]
        elif name in _RECALLING:
            self.stack.append(self._memory[argument])
        elif name in _TAKING:
            self._take(name)
        elif method := getattr(self, f"do_{name.lower()}", None):
            method(argument)
        elif name not in ("PROTO", "FRAME"):
            reason = "which no table of tensors needs"
            raise _Refused(f"its pickle has the instruction {name}, {reason}")

    def do_mark(self, _) -> None:
        self._marks.append(len(self.stack))

    def _take(self, name: str) -> None:
        """Makes a container of the top values of the stack, or adds them to the value below them."""
        count = _TAKING[name]
        start = self._marks.pop() if count is None else len(self.stack) - count
        if start < 0:
            raise IndexError("the stack is empty")
        values = self.stack[start:]
        del self.stack[start:]
        if name.startswith("TUPLE"):
            self.stack.append(tuple(values))
        elif name == "LIST":
            self.stack.append(values)
        elif name.startswith("APPEND"):
            if not isinstance(self.stack[-1], list):
                raise TypeError("something is appended to what is no list")
            self.stack[-1].extend(values)
        else:
            if name == "DICT":
                self.stack.append({})
            self._set(values)

    def _set(self, items: list) -> None:
        """Adds alternating keys and values to the dictionary on top; refuses nested keys, whose hash may never end."""
        keys, values = items[::2], items[1::2]
        if not isinstance(self.stack[-1], dict) or not all(type(key) in (str, int) for key in keys):
            raise TypeError("a dictionary with names or numbers as keys was expected")
        self.stack[-1].update(zip(keys, values, strict=True))

    def do_global(self, argument: str) -> None:
        self._name(*argument.split(" ", 1))

    def do_stack_global(self, _) -> None:
        name = self.stack.pop()
        self._name(self.stack.pop(), name)

    def _name(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise TypeError("a name that is no string")
        if (module, name) not in _ALLOWED:
            reason = "which no table of tensors needs; nothing of it was run"
            raise _Refused(f"asks for {f'{module}.{name}'[:80]!r}, {reason}")
        self.stack.append(_Global(module, name))

    def do_binpersid(self, _) -> None:
        kind, storage_type, key, _, num_values, *view = self.stack.pop()
        sound = kind == "storage" and isinstance(key, str) and view in ([], [None])
        sound = sound and isinstance(storage_type, _Global) and storage_type.name in _DTYPES
        if not (sound and type(num_values) is int and 0 <= num_values < 2**60):
            raise TypeError("a storage is described in a way that is unknown")
        self.stack.append(_Storage(key, storage_type.name, num_values))

    def do_reduce(self, _) -> None:
        """Handles the call of a function: pushes a record instead of its result."""
        arguments, function = self.stack.pop(), self.stack.pop()
        if not isinstance(function, _Global) or not isinstance(arguments, tuple):
            raise TypeError("a call of what is no function")
        if function == _ORDERED_DICT:
            self.stack.append({})
            for pair in arguments[0] if arguments else []:
                self._set(list(pair))
        elif function in (_TENSOR, _TENSOR_V2):
            self.stack.append(_Tensor(*arguments[:4]))
        elif function == _PARAMETER:
            self.stack.append(arguments[0])
        else:
            raise TypeError(f"a call of {function.name}")

    def do_build(self, _) -> None:
        """Handles attributes of an object; those of torch's table of tensors are not needed."""
        self.stack.pop()
        if not isinstance(self.stack[-1], dict):
            raise TypeError("attributes of what has none")


_NUMBERS = {"INT", "LONG", "LONG1", "LONG4", "BININT", "BININT1", "BININT2", "FLOAT", "BINFLOAT"}
_UNICODE = {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
_PUSHING = _NUMBERS | _UNICODE | {"STRING", "BINSTRING", "SHORT_BINSTRING"}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_MAKING = {"EMPTY_TUPLE": tuple, "EMPTY_LIST": list, "EMPTY_DICT": dict}
# Number of values that an instruction takes from the stack; None means all values since the last mark.
_TAKING: dict[str, int | None] = {
    **{"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "APPEND": 1, "SETITEM": 2},
    **dict.fromkeys(("TUPLE", "LIST", "DICT", "APPENDS", "SETITEMS")),
}
_REMEMBERING = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
_RECALLING = {"GET", "BINGET", "LONG_BINGET"}
