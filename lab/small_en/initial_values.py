r"""Writes a model that already knows which words occur near each other, for `run_pretraining.py --init_checkpoint`.

    python -m lab.small_en.initial_values --albert_config_file=2_layers.json --input_file=train.txt \
        --spm_model_file=spiece.model --output_dir=initial

Random initial values leave a small model at the frequencies of tokens for millions of tokens. These begin beyond them:
- the embeddings are singular vectors of the tokens' positive pointwise mutual information (Levy and Goldberg 2014), and
  the bias of the masked-LM head is the logarithm of their frequencies;
- the positions are sinusoids; a third of the heads attends to the tokens before, a third to those after, and a third to
  all (after Trockman and Kolter, arXiv 2305.09828);
- values, outputs and the masked-LM head begin as identities: the head sees a mean of the neighbors' embeddings.
"""

import dataclasses
from collections.abc import Iterator

import numba
import numpy as np
from sklearn.utils.extmath import randomized_svd

from albert_tf.core import flags
from albert_tf.core.settings import Settings, setting
from albert_tf.formats import pretrained
from albert_tf.model.config import AlbertConfig
from albert_tf.model.heads import AlbertForPreTraining
from albert_tf.text.tokenizer import Tokenizer

_WINDOW = 8  # tokens on each side; a pair at distance d counts 1/d
_LINES = 20_000  # tokenized at once
_OFFSET = 1.4  # of the tokens that a local head attends to
_HIGHEST, _LOWEST = 2.5, 1e-3  # angular frequencies of the positions, per token
_POSITIONS = 0.4  # their size relative to that of the embeddings
_SHARPNESS = 1.2  # factor of the local heads' scores
_HEAD_BIAS = 3.0  # GELU is nearly linear there; LayerNorm removes it

_LAYER = "bert/encoder/transformer/group_0/inner_group_0/attention_1/"
_HEAD = "cls/predictions/transform/dense/"
_MAPPING = "bert/encoder/embedding_hidden_mapping_in/kernel"
PARTS = {
    "embeddings": ("bert/embeddings/word_embeddings", "cls/predictions/output_bias"),
    "attention": (
        "bert/embeddings/position_embeddings",
        _MAPPING,
        f"{_LAYER}self/query/kernel",
        f"{_LAYER}self/key/kernel",
    ),
    "identities": (
        _MAPPING,
        f"{_LAYER}self/value/kernel",
        f"{_LAYER}output/dense/kernel",
        f"{_HEAD}kernel",
        f"{_HEAD}bias",
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class InitialValuesSettings(Settings):
    """The model and the text from which its initial values are computed."""

    albert_config_file: str = setting(
        "",
        "Sizes of the model; the number of heads is a multiple of six.",
        required=True,
        input_path=True,
    )
    input_file: str = setting("", "Text, one sentence per line.", required=True, input_path=True)
    spm_model_file: str = setting("", "SentencePiece model.", required=True, input_path=True)
    output_dir: str = setting("", "Folder of the model.", required=True)
    parts: str = setting(
        "embeddings,attention,identities",
        "Which values are computed; the others have their usual random values.",
    )
    seed: int = setting(1, "Seed of what stays random.", minimum=0)

    def __post_init__(self):
        super().__post_init__()
        for part in self.parts.split(","):
            if part not in PARTS:
                self.refuse("parts", f"has {part!r}; known are {', '.join(PARTS)}")


@numba.njit
def _count(ids, lengths, counts):  # pragma: no cover
    start = 0
    for length in lengths:
        for i in range(start, start + length):
            for j in range(max(start, i - _WINDOW), i):
                counts[ids[i], ids[j]] += np.float32(1.0 / (i - j))
        start += length


def _joined(ids_of_lines: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    ids = np.concatenate([np.empty(0, np.int32), *ids_of_lines])
    return ids, np.array([*map(len, ids_of_lines)], np.int64)


def co_occurrences(lines: Iterator[str], tokenizer: Tokenizer) -> np.ndarray:
    """How often two tokens occur near each other in a line, [V, V] float32, symmetric."""
    counts = np.zeros((tokenizer.vocab_size, tokenizer.vocab_size), np.float32)
    batch: list[str] = []
    for line in lines:
        batch.append(line.strip())
        if len(batch) == _LINES:
            _count(*_joined(tokenizer.encode_batch(batch)), counts)
            batch.clear()
    _count(*_joined(tokenizer.encode_batch(batch)), counts)
    return counts + counts.T


def embeddings_of(counts: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Embeddings [V, E] whose products approximate the mutual information; those of tokens never seen are random."""
    total = counts.sum(1)
    seen = total > 0
    # Context distribution smoothing: Levy, Goldberg and Dagan 2015.
    context = np.maximum(total, 1) ** 0.75
    context /= context.sum()
    with np.errstate(divide="ignore"):
        for row, of_row in zip(counts, np.maximum(total, 1), strict=True):
            row[:] = np.maximum(0, np.log(row / of_row / context))
    # The first component is nearly the same for all tokens.
    left, values, _ = randomized_svd(
        counts, size + 1, n_iter=3, random_state=int(rng.integers(2**31))
    )
    embeddings = left[:, 1:] * np.sqrt(values[1:])
    embeddings -= embeddings[seen].mean(0)
    embeddings /= embeddings[seen].std()
    embeddings[~seen] = rng.normal(scale=0.25, size=(np.sum(~seen), size))
    return embeddings


def frequencies_of_positions(size: int) -> np.ndarray:
    """Angular frequencies, [E/2], falling geometrically."""
    return _HIGHEST * (_LOWEST / _HIGHEST) ** (np.arange(size // 2) / (size // 2 - 1))


def sinusoids(num_positions: int, size: int) -> np.ndarray:
    """Positions [L, E] of mean square 1: sines, then cosines."""
    angles = np.arange(num_positions)[:, None] * frequencies_of_positions(size)
    return np.concatenate([np.sin(angles), np.cos(angles)], 1) * np.sqrt(2)


def attention(
    from_hidden: np.ndarray, heads: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Kernels [D, D] of query, key, value and output, by name; `from_hidden` [D, E] has orthonormal columns."""
    width, size = from_hidden.shape
    head_size = width // heads
    # Scores compare the positions of high frequency; values take the parts of the embeddings in turn.
    half = head_size // 2
    chosen = np.r_[:half, size // 2 : size // 2 + half]
    kernels = {name: [] for name in ("query", "key", "value", "output")}
    parts = np.array_split(np.arange(size), size // head_size)
    for head in range(heads):
        offset = (-_OFFSET, _OFFSET, None)[head * 3 // heads]
        if offset is None:
            query, key = rng.normal(scale=0.01, size=(2, width, head_size))
        else:
            angles = frequencies_of_positions(size)[:half] * offset
            cosine, sine = np.diag(np.cos(angles)), np.diag(np.sin(angles))
            key = from_hidden[:, chosen] * np.sqrt(_SHARPNESS)
            query = key @ np.block([[cosine, -sine], [sine, cosine]])
        value = from_hidden[:, parts[head % len(parts)]]
        for name, kernel in zip(kernels, (query, key, value, value), strict=True):
            kernels[name].append(kernel)
    return {name: np.concatenate(each, 1) for name, each in kernels.items()}


def main(settings: InitialValuesSettings) -> None:
    """Computes the values and writes the model folder."""
    rng = np.random.default_rng(settings.seed)
    config = AlbertConfig.from_json_file(settings.albert_config_file)
    size, width, scale = config.embedding_size, config.hidden_size, config.initializer_range
    tokenizer = Tokenizer.from_file(settings.spm_model_file, do_lower_case=True)
    with open(settings.input_file, encoding="utf-8") as lines:
        counts = co_occurrences(lines, tokenizer)
    frequencies = np.maximum(counts.sum(1), 1)
    embeddings = embeddings_of(counts, size, rng)
    embeddings[tokenizer.mask_id] = 0
    to_hidden = np.linalg.qr(rng.normal(size=(width, size)))[0].T  # [E, D], orthonormal rows
    kernels = attention(to_hidden.T, config.num_attention_heads, rng)
    positions = _POSITIONS * sinusoids(config.max_position_embeddings, size)
    computed = {
        "bert/embeddings/word_embeddings": scale * embeddings,
        "bert/embeddings/position_embeddings": scale * positions,
        _MAPPING: to_hidden,
        f"{_LAYER}self/query/kernel": kernels["query"],
        f"{_LAYER}self/key/kernel": kernels["key"],
        f"{_LAYER}self/value/kernel": kernels["value"],
        f"{_LAYER}output/dense/kernel": kernels["output"].T,
        f"{_HEAD}kernel": to_hidden.T,
        f"{_HEAD}bias": np.full(size, _HEAD_BIAS),
        "cls/predictions/output_bias": np.log(frequencies / frequencies.sum()),
    }
    values = {name: computed[name] for part in settings.parts.split(",") for name in PARTS[part]}
    model = AlbertForPreTraining(config)
    variables = dict(model.named_variables())
    for name, value in values.items():
        variables[name].assign(value.astype(np.float32))
    pretrained.save_pretrained(model, settings.output_dir, spm_model_file=settings.spm_model_file)
    print(f"initial values of {len(values)} of {len(variables)} variables in {settings.output_dir}")


if __name__ == "__main__":
    flags.run(main, InitialValuesSettings, description=__doc__)
