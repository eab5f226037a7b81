"""Chooses the examples of one table that are held out for evaluations (--eval_fraction)."""

from collections.abc import Hashable, Sequence

import numpy as np

_SEED = 20


def held_out(kinds: Sequence[Hashable], groups: Sequence[Hashable], fraction: float) -> np.ndarray:
    """Which examples are held out, bool [examples]; the same ones in every run.

    Each kind is held out in the same proportion, if it has enough groups. All examples of a group are on one side.

    Args:
      kinds: for each example what should be as frequent on both sides, such as its label.
      groups: for each example what must not be on both sides, such as its text.
      fraction: the share of each kind that is held out, above 0 and below 1.
    """
    # A group is of the kind of its first example.
    kind_of_group: dict[Hashable, Hashable] = {}
    for kind, group in zip(kinds, groups, strict=True):
        kind_of_group.setdefault(group, kind)
    groups_of_kind: dict[Hashable, list[Hashable]] = {}
    for group, kind in kind_of_group.items():
        groups_of_kind.setdefault(kind, []).append(group)

    rng = np.random.default_rng(_SEED)
    chosen: set[Hashable] = set()
    for members in groups_of_kind.values():
        # A kind of two groups or more is on both sides; the only group of a kind is trained on.
        most = len(members) - 1
        number = min(most, max(1, round(fraction * len(members))))
        chosen.update(members[index] for index in rng.permutation(len(members))[:number])
    return np.array([group in chosen for group in groups], bool)
