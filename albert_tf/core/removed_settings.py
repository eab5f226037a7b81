"""Settings that programs no longer have, but that folders of older runs and command lines contain."""

from typing import Any, NamedTuple


class RemovedSetting(NamedTuple):
    """What a removed setting was."""

    defaults: tuple[Any, ...]  # recorded values of runs that did not use it
    advice: str  # what to do instead


REMOVED = {
    "depth_losses": RemovedSetting(
        defaults=("", 0.0),
        advice="losses of other layers were removed; albert-tf fold with --num_folded_layers makes a shallower model",
    ),
}
