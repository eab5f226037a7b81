"""What exported models read, and which of their parts have trained values."""

from collections.abc import Collection

TOKENS = ("input_ids", "input_mask", "segment_ids")


def parts_without(missing: Collection[str]) -> set[str]:
    """The parts with trained values, among those that some models on disk lack: "pooler", "mlm", "sop"."""
    prefixes = {
        "pooler": ("bert/pooler",),
        "mlm": ("cls/predictions",),
        "sop": ("bert/pooler", "cls/seq_relationship"),
    }
    return {
        part
        for part, starts in prefixes.items()
        if not any(name.startswith(starts) for name in missing)
    }
