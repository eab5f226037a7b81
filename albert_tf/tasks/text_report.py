"""What a model cannot read of texts: tokens that its vocabulary does not know, and what is cut at a limit."""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from albert_tf.data.feature_table import FeatureTable
from albert_tf.text.tokenizer import Tokenizer

WARNING = "warning: "  # begins the lines that are more than remarks
_MANY_UNKNOWN = 0.1  # share of the tokens, above which it is a warning
_MOST_ARE_CUT = 0.5  # share of the texts, above which it is a warning


@dataclasses.dataclass
class TokenCounts:
    """How many tokens texts have, without [CLS], [SEP], [MASK] and padding, and how many of them are unknown."""

    tokens: int = 0
    unknown: int = 0

    def add(self, ids: np.ndarray, tokenizer: Tokenizer) -> None:
        """Counts token ids, int of any shape."""
        special = [tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id]
        self.tokens += int(np.size(ids) - np.isin(ids, special).sum())
        self.unknown += int(np.sum(np.equal(ids, tokenizer.unk_id)))

    def since(self, before: "TokenCounts") -> "TokenCounts":
        """What was counted after a copy of these counts was made."""
        return TokenCounts(self.tokens - before.tokens, self.unknown - before.unknown)

    def warning(self) -> str:
        """A line if more than a tenth of the tokens are unknown; otherwise an empty text."""
        if self.unknown <= _MANY_UNKNOWN * self.tokens:
            return ""
        share = f"{100 * self.unknown / self.tokens:.0f} % of the tokens"
        question = "is the model for texts of this language? (docs/guides/other_languages.md)"
        return f"{WARNING}the model's vocabulary does not know {share}: {question}"


class TextReport:
    """Counts texts of a predictor for `remarks`."""

    def __init__(self) -> None:
        self.tokens = TokenCounts()
        self._num_texts = 0
        self._num_empty = 0
        # Setting that cuts texts -> length without the limit -> number of texts.
        self._lengths: dict[str, Counter[int]] = defaultdict(Counter)

    def count_text(self, text: str) -> None:
        """Counts a text, and whether it is empty."""
        self._num_texts += 1
        self._num_empty += not text.strip()

    def count_table(self, table: FeatureTable, tokenizer: Tokenizer) -> None:
        """Counts the tokens of a table, and the lengths of its texts."""
        if "input_ids" in table.sequences:  # a task of the user may have others
            self.tokens.add(table.sequences["input_ids"], tokenizer)
        for name, lengths in table.uncut_lengths.items():
            self._lengths[name].update(lengths.tolist())

    def count_length(self, name: str, length: int) -> None:
        """Counts a text of a number of tokens that a setting may cut."""
        self._lengths[name][length] += 1

    def remarks(
        self, limits: Mapping[str, Any], model_limit: int, *, may_have_windows: bool = False
    ) -> list[str]:
        """Lines that say how many texts were empty, or cut; without those that would say none.

        Args:
          limits: for each setting that cuts texts, its value.
          model_limit: the most tokens that the model can read.
          may_have_windows: whether --windows would read long texts without cutting them.
        """
        lines = []
        if self._num_empty:
            lines.append(f"{self._num_empty:,} of {self._num_texts:,} texts are empty")
        for name, counted in list(self._lengths.items()):
            counts = Counter(dict(counted))  # another thread may go on counting
            lengths = np.fromiter(counts.elements(), np.int64)
            line = cut_line(
                lengths, name, limits[name], model_limit, may_have_windows=may_have_windows
            )
            if np.any(lengths > limits[name]):
                lines.append(line)
        return lines

    def most_are_cut(self, limits: Mapping[str, Any]) -> bool:
        """Whether --max_seq_length cuts most texts; faster than `remarks`."""
        counts = dict(self._lengths.get("max_seq_length", {}))  # another thread may go on counting
        limit = limits["max_seq_length"]
        num_cut = sum(number for length, number in counts.items() if length > limit)
        return num_cut > _MOST_ARE_CUT * sum(counts.values())


def cut_line(
    lengths: np.ndarray,
    name: str,
    limit: int,
    model_limit: int | None = None,
    *,
    texts: str = "texts",
    may_have_windows: bool = False,
) -> str:
    """How many of some texts a setting cuts, and what reads more of them; a warning if it cuts most of them.

    Example: "22 texts, 3 of them (14 %) cut at --max_seq_length=33; 95 % have at most 36 tokens".

    Args:
      lengths: numbers of tokens that the texts would have, int [texts], at least one.
      model_limit: see `TextReport.remarks`; None if it is not known, or nothing more can be read.
      texts: what they are called.
    """
    num_texts = len(lengths)
    num_cut = int(np.sum(lengths > limit))
    most = int(np.percentile(lengths, 95, method="inverted_cdf"))
    share = (
        f"{num_cut:,} of them ({100 * num_cut / num_texts:.0f} %)" if num_cut else "none of them"
    )
    line = (
        f"{num_texts:,} {texts}, {share} cut at --{name}={limit}; 95 % have at most {most:,} tokens"
    )
    if name != "max_seq_length" or not num_cut or not model_limit:
        return line
    line += f"; {_advice(int(max(lengths)), limit, model_limit, may_have_windows)}"
    return f"{WARNING}{line}" if num_cut > _MOST_ARE_CUT * num_texts else line


def _advice(longest: int, limit: int, model_limit: int, may_have_windows: bool) -> str:
    """What reads texts of at most `longest` tokens that --max_seq_length cuts; no length above the model's limit."""
    if longest <= model_limit:
        advice = f"--max_seq_length={longest} reads them whole"
    elif limit < model_limit:
        reads = f"--max_seq_length={model_limit} reads more of them"
        advice = f"the model's limit is {model_limit} tokens: {reads}"
    else:
        advice = f"that is the model's limit of {model_limit} tokens"
    if may_have_windows:
        advice += ", and --windows reads them in parts"
    return advice
