"""The reader of torch.save's files: both layouts, and what it rejects without running anything."""

import os
import pickle
import zipfile

import numpy as np
import pytest
import safetensors.numpy

from albert_tf import UserError
from albert_tf.formats import torch_file
from tests.helpers import ROOT

RECORDED = ROOT / "tests" / "recorded_outputs"


def tensor(offset=0, shape=(2, 3), strides=(3, 1), num_values=6, kind="FloatStorage", key="0"):
    """The instructions for one tensor, as torch.save pickles it (in the text form of protocol 0)."""

    def numbers(values) -> str:
        return "(" + "".join(f"I{value}\n" for value in values) + "t"

    storage = f"(Vstorage\nctorch\n{kind}\nV{key}\nVcpu\nI{num_values}\ntQ"
    rest = f"I{offset}\n{numbers(shape)}{numbers(strides)}I00\nccollections\nOrderedDict\n)R"
    return f"ctorch._utils\n_rebuild_tensor_v2\n({storage}{rest}tR".encode()


def table(**values: bytes) -> bytes:
    items = b"".join(b"V" + name.encode() + b"\n" + value + b"s" for name, value in values.items())
    return b"}" + items + b"."


def write_zip(path, pickled: bytes, data: dict[str, bytes] | None = None, **others: bytes) -> str:
    data = {"0": np.arange(6, dtype="<f4").tobytes()} if data is None else data
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        named = {f"data/{key}": value for key, value in data.items()}
        for name, content in {**named, **others}.items():
            archive.writestr(f"archive/{name}", content)
    return str(path)


def error_of(path) -> str:
    with pytest.raises(UserError) as error:
        torch_file.read(str(path))
    message = str(error.value)
    assert message.startswith(f"{path}: ") and "\n" not in message and len(message) < 400
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize("name", ["zip.bin", "legacy.bin"])
def test_what_torch_wrote_is_read(name):
    tensors = torch_file.read(str(RECORDED / name))
    expected = safetensors.numpy.load_file(RECORDED / "pretraining" / "model.safetensors")
    # The tied word table and the tied bias stand in it twice, and share their values.
    copies = {"predictions.decoder.weight", "predictions.decoder.bias"}
    assert tensors.keys() == expected.keys() | copies
    for key, array in expected.items():
        np.testing.assert_array_equal(tensors[key], array, err_msg=key)
        assert tensors[key].dtype == np.float32
    word_table = tensors["albert.embeddings.word_embeddings.weight"]
    assert np.shares_memory(tensors["predictions.decoder.weight"], word_table)


def test_shapes_strides_and_offsets(tmp_path):
    pickled = table(
        whole=tensor(),
        turned=tensor(shape=(3, 2), strides=(1, 3)),
        part=tensor(offset=4, shape=(2,), strides=(1,)),
        number=tensor(offset=5, shape=(), strides=()),
        nothing=tensor(offset=6, shape=(0, 3), strides=(3, 1)),
    )
    found = torch_file.read(write_zip(tmp_path / "x.bin", pickled))
    whole = np.arange(6.0).reshape(2, 3)
    assert {name: array.tolist() for name, array in found.items()} == {
        "whole": whole.tolist(),
        "turned": whole.T.tolist(),
        "part": [4.0, 5.0],
        "number": 5.0,
        "nothing": [],
    }
    assert np.shares_memory(found["whole"], found["turned"])
    with pytest.raises(ValueError, match="read-only"):
        found["whole"][0] = 1


@pytest.mark.parametrize(
    "kind,dtype",
    [
        *(("Float", "f4"), ("Double", "f8"), ("Half", "f2"), ("Long", "i8"), ("Int", "i4")),
        *(("Short", "i2"), ("Char", "i1"), ("Byte", "u1"), ("Bool", "?")),
    ],
)
@pytest.mark.parametrize("order", ["little", "big"])
def test_types_and_byte_orders(tmp_path, kind, dtype, order):
    values = np.array([0, 1, 2, 3, 100, 1], np.dtype(dtype))
    data = values.astype(np.dtype(dtype).newbyteorder("<" if order == "little" else ">"))
    path = tmp_path / "x.bin"
    write_zip(
        path,
        table(w=tensor(kind=f"{kind}Storage")),
        {"0": data.tobytes()},
        byteorder=order.encode(),
    )
    found = torch_file.read(str(path))["w"]
    np.testing.assert_array_equal(found, values.reshape(2, 3))
    assert found.dtype.kind == np.dtype(dtype).kind


def test_bfloat16_becomes_float32(tmp_path):
    values = np.array([1.0, -2.5, 3e38, 0.0, -0.0, np.inf], np.float32)
    data = {"0": (values.view(np.uint32) >> 16).astype("<u2").tobytes()}
    path = write_zip(tmp_path / "x.bin", table(w=tensor(kind="BFloat16Storage")), data)
    found = torch_file.read(path)["w"].ravel()
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, values, rtol=2**-7)


class Attack:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("layout", ["zip", "bare", "legacy"])
def test_code_is_rejected_by_name_and_not_run(tmp_path, protocol, layout):
    pickled = pickle.dumps({"w": Attack(tmp_path / "attacked")}, protocol=protocol)
    path = tmp_path / "x.bin"
    if layout == "zip":
        write_zip(path, pickled)
    elif layout == "bare":
        path.write_bytes(pickled)
    else:
        path.write_bytes(legacy_start() + pickled)
    message = error_of(path)
    if layout != "bare" or protocol >= 2:
        assert "'posix.mkdir'" in message or "'nt.mkdir'" in message
    assert not (tmp_path / "attacked").exists()


def legacy_start() -> bytes:
    system = {"protocol_version": 1001, "little_endian": True}
    return b"".join(
        pickle.dumps(value, protocol=2) for value in (0x1950A86A20F9469CFC6C, 1001, system)
    )


@pytest.mark.parametrize(
    "pickled",
    [
        b"\x80\x02cbuiltins\neval\n(V1\ntR.",
        b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93(V1\ntR.",
        b"(V1\nibuiltins\neval\n.",  # INST
        b"(cbuiltins\neval\nV1\no.",  # OBJ
        b"\x80\x02\x82\x01.",  # an extension of copyreg
        b"ctorch\nFloatStorage\n)\x81.",  # NEWOBJ
        b"ctorch\nFloatStorage\n)R.",
        b"ccollections\nOrderedDict\nN\x85R.",
        b"ctorch.storage\n_load_from_bytes\n(V1\ntR.",
        b"ctorch._utils\n_rebuild_tensor_v2\n.",
    ],
)
def test_no_other_way_to_call_anything(tmp_path, pickled):
    error_of(write_zip(tmp_path / "x.bin", pickled))


@pytest.mark.parametrize(
    "changes",
    [
        {"offset": -1},
        {"offset": 1},
        {"shape": (-2, 3)},
        {"shape": (2, 4)},
        {"strides": (-3, 1)},
        {"strides": (4, 1)},
        {"strides": (1,)},
        {"shape": (10**12, 3), "strides": (0, 0)},
        {"shape": (1,) * 70, "strides": (1,) * 70},
        {"num_values": 7},
        {"num_values": -6},
        {"num_values": 10**30},
        {"kind": "UntypedStorage"},
        {"key": "1"},
        {"key": "../data.pkl"},
    ],
    ids=str,
)
def test_tensors_that_are_no_views_of_their_storage(tmp_path, changes):
    error_of(write_zip(tmp_path / "x.bin", table(w=tensor(**changes))))


def test_one_storage_described_in_two_ways(tmp_path):
    pickled = table(a=tensor(), b=tensor(kind="IntStorage"))
    assert "in two ways" in error_of(write_zip(tmp_path / "x.bin", pickled))


def test_what_holds_more_than_tensors(tmp_path):
    pickled = table(epoch=b"I3\n", w=tensor())
    message = error_of(write_zip(tmp_path / "x.bin", pickled))
    assert "found 'epoch'; save model.state_dict()" in message
    assert "got list" in error_of(write_zip(tmp_path / "y.bin", b"]."))


@pytest.mark.parametrize(
    "pickled",
    [
        b"r\xff\xff\xff\x7f.",  # remembers what is not there, under a large number
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7fx.",  # bytes of 2**63 - 1
        b"\x8d\xff\xff\xff\xff\xff\xff\xff\x00x.",  # a long string
        b"L" + b"9" * 5000 + b"L\n.",
        b"}" * 1_000_002 + b".",
        b"(" * 100 + b"t" * 101 + b".",
        b"",
        b".",
        b"0.",
    ],
    ids=lambda pickled: repr(pickled[:8]),
)
def test_pickles_with_large_claims_and_none(tmp_path, pickled):
    error_of(write_zip(tmp_path / "x.bin", pickled))
    path = tmp_path / "y.bin"
    path.write_bytes(legacy_start() + pickled)
    error_of(path)


def test_archives_that_torch_does_not_write(tmp_path):
    with zipfile.ZipFile(tmp_path / "other.bin", "w") as archive:
        archive.writestr("text.txt", "text")
    assert "without data.pkl" in error_of(tmp_path / "other.bin")
    with zipfile.ZipFile(tmp_path / "small.bin", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", table(w=tensor(num_values=10**7)))
        archive.writestr("archive/data/0", bytes(4 * 10**7))
    assert "compressed" in error_of(tmp_path / "small.bin")


@pytest.mark.parametrize("content", [b"", b"no weights", b"version https://git-lfs", b"PK\x03\x04"])
def test_other_files(tmp_path, content):
    (tmp_path / "x.bin").write_bytes(content)
    error_of(tmp_path / "x.bin")
    assert "cannot be read" in error_of(tmp_path / "nowhere.bin")
    assert "cannot be read" in error_of(tmp_path)
