"""What a Dask worker of `test_cluster.py` loads first: it notes the blocks that it computes; one has a full disk."""

import errno
import os

import distributed

from albert_tf.core import files
from albert_tf.data_prep.pretraining import blocks


def dask_setup(worker: distributed.Worker) -> None:
    """Replaces functions of the package in this worker; Dask calls it when the worker starts."""
    read_block = blocks.read_block

    def noted(block: blocks.Block) -> blocks.Text:
        with open(os.environ["COMPUTED_BLOCKS"], "a") as log:
            log.write(f"{block.number}\n")
        return read_block(block)

    def full_disk(path: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    blocks.read_block = noted
    if "FULL_DISK" in os.environ:
        files.sync = full_disk
