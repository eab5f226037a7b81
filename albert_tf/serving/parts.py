"""What exported models read, and which of their parts have trained values."""

from collections.abc import Collection

TOKENS = ("input_ids", "input_mask", "segment_ids")


def parts_without(missing: Collection[str]) -> set[str]:
    """The parts with trained values, among those that some models on disk lack: "pooler", "mlm", "sop"."""
    prefixes: dict[str, tuple[str, ...]] = {"pooler": ("bert/pooler",), "mlm": ("cls/predictions",)}
    prefixes["sop"] = ("bert/pooler", "cls/seq_relationship")
    lacks = {key for key, starts in prefixes.items() for name in missing if name.startswith(starts)}
    return prefixes.keys() - lacks
