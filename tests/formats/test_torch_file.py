"""Files of torch.save, read with torch where it is installed."""

import sys

import numpy as np
import pytest
import safetensors.numpy

from albert_tf import UserError
from albert_tf.formats import torch_file
from tests.helpers import ROOT

RECORDED = ROOT / "tests" / "recorded_outputs"


@pytest.mark.parametrize("name", ["zip.bin", "legacy.bin"])
def test_what_torch_wrote_is_read(name):
    pytest.importorskip("torch")
    tensors = torch_file.read(str(RECORDED / name))
    expected = safetensors.numpy.load_file(RECORDED / "pretraining" / "model.safetensors")
    for key, array in expected.items():
        np.testing.assert_array_equal(tensors[key], array, err_msg=key)
        assert tensors[key].dtype == np.float32


def test_a_file_that_is_no_model_is_rejected(tmp_path):
    torch = pytest.importorskip("torch")
    (tmp_path / "damaged.bin").write_bytes(b"damaged")
    torch.save([1, 2], tmp_path / "list.bin")
    for name, reason in (("damaged", "cannot be read by torch"), ("list", "expected the tensors")):
        with pytest.raises(UserError, match=f"{name}.bin: {reason}"):
            torch_file.read(str(tmp_path / f"{name}.bin"))


def test_without_torch_the_other_file_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UserError, match=r"pip install torch, or .* model\.safetensors"):
        torch_file.read(str(RECORDED / "zip.bin"))
