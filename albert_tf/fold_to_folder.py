"""Reads a trained BERT or ALBERT, folds it, and writes the result to a folder: what `albert-tf fold` does."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from albert_tf.core.errors import UserError
from albert_tf.core.locks import locks_output_dir
from albert_tf.core.settings import setting
from albert_tf.model.config import SHARING_STRATEGIES, AlbertConfig
from albert_tf.serving.settings import ModelSettings
from albert_tf.tasks.settings import files_setting

if TYPE_CHECKING:
    import numpy as np

    from albert_tf.text.tokenizer import Tokenizer

_GROUPS = 3
_LINES = 2000  # of --input_file, for the frequencies of tokens
_NUM_SHOWN = 16  # of them, for the errors of layers; otherwise these
_TEXTS = (
    "The committee will meet again on Tuesday to decide who pays for the new bridge.",
    "She opened the window, and cold air filled the room.",
    "How do plants turn light into sugar?",
    "The film is too long, but its last scene is worth the wait.",
    "In 1969, two people walked on the Moon for the first time.",
    "A man is playing a guitar on the street.",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoldSettings(ModelSettings):
    """The model to fold, and the sizes of the result."""

    output_dir: str = setting("", "Folder to write to; it must not contain a model.", required=True)
    embedding_size: int | None = setting(
        None,
        "Width of the embeddings of the result, E; by default 128, or that of the model if it is smaller.",
        minimum=1,
    )
    share_parameters: str = setting(
        "all", "What the layers of a group share.", choices=SHARING_STRATEGIES
    )
    num_hidden_groups: int | None = setting(
        None,
        "Number of groups of layers in the result; a group shares what --share_parameters says. By default 3 if all"
        " parameters are shared, or fewer if the model has fewer layers or groups, and otherwise 1.",
        minimum=1,
    )
    num_folded_layers: int | None = setting(
        None,
        "Number of layers of the result, which are spread evenly over those of the model; by default, all.",
        minimum=1,
    )
    layers_from: str = setting(
        "middle",
        "Which layers of the model give a copy of the parameters its values: the middle one of those that it replaces"
        " (heads and neurons of several layers do not correspond), the first, or their mean.",
        choices=("middle", "first", "mean"),
    )
    input_file: str = files_setting(
        "Text, one on each line, that shows how frequent tokens are; by default, Zipf's law is assumed."
    )


@locks_output_dir
def main(settings: FoldSettings) -> None:
    """Reads a model, folds it, writes the result and prints what was kept."""
    from albert_tf.core import files
    from albert_tf.formats import folding, pretrained  # TensorFlow
    from albert_tf.formats.model_tokenizer import tokenizer_of
    from albert_tf.serving.finished_model import recorded_settings

    if files.exists(f"{settings.output_dir}/config.json"):
        raise UserError(f"--output_dir={settings.output_dir}: contains a model already")
    settings.register_task()
    weights = pretrained.read_weights(settings.model, settings.num_hidden_layers)
    config = _folded_config(settings, weights.config)
    vocabulary = settings.vocabulary_file or weights.vocabulary
    tokenizer = tokenizer_of(weights, vocabulary) if vocabulary else None
    texts, frequencies = _texts_and_frequencies(settings, tokenizer, weights.config.vocab_size)
    folded, explained = folding.fold(
        weights, config, layers_from=settings.layers_from, frequencies=frequencies
    )
    model, report = pretrained.build_model(folded)
    pretrained.save_pretrained(
        model,
        settings.output_dir,
        "hf",
        tokenizer or "",
        **weights.cleaning,
        task=recorded_settings(weights),
    )
    print(_table(weights, folded, explained))
    if report.ignored:
        print(f"left out, as no model here has them: {', '.join(report.ignored)}")
    if tokenizer:
        print(_table_of_errors(layer_errors(weights, model, tokenizer, texts)))


def _folded_config(settings: FoldSettings, teacher: AlbertConfig) -> AlbertConfig:
    """The sizes of the result; a UserError if a model of the teacher's sizes cannot be folded into them."""
    if teacher.inner_group_num > 1:
        raise UserError(f"{settings.model}: has several blocks in a layer, and cannot be folded")
    most = teacher.embedding_size
    embedding_size = settings.embedding_size or min(128, most)
    if embedding_size > most:
        settings.refuse("embedding_size", f"is above the model's, {most}: folding makes it smaller")

    num_layers = settings.num_folded_layers or teacher.num_hidden_layers
    # More groups than the model has would be copies of the same weights.
    all_shared = teacher.share_parameters == "all"
    own_groups = teacher.num_hidden_groups if all_shared else teacher.num_hidden_layers
    most_groups = min(_GROUPS, num_layers, own_groups)
    default_groups = most_groups if settings.share_parameters == "all" else 1
    return teacher.replace(
        embedding_size=embedding_size,
        num_hidden_layers=num_layers,
        num_hidden_groups=settings.num_hidden_groups or default_groups,
        share_parameters=settings.share_parameters,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )


def _texts_and_frequencies(
    settings: FoldSettings, tokenizer: "Tokenizer | None", vocab_size: int
) -> tuple[Sequence[str], "np.ndarray | None"]:
    """Texts for the errors of layers, and how often each token is in --input_file, [V]; None without that file."""
    import numpy as np

    from albert_tf.user_files.table_files import read_texts

    if not settings.input_file:
        return _TEXTS, None
    if not tokenizer:
        raise UserError(f"{settings.model}: has no vocabulary for --input_file")
    all_lines = read_texts(settings.input_file, f"--input_file={settings.input_file}")
    # Evenly spread over the file: 9,000 lines -> each fourth -> 2,250, and each 140th of them -> 17 texts.
    lines = all_lines[:: max(1, len(all_lines) // _LINES)]
    texts = lines[:: max(1, len(lines) // _NUM_SHOWN)]
    ids = np.concatenate(tokenizer.encode_batch(lines))
    frequencies = np.bincount(ids, minlength=vocab_size).astype(float)
    return texts, frequencies


def _table(weights, folded, explained: float) -> str:
    """What the model was and is."""
    rows: list[tuple[str, ...]] = [("", "before", "after")]
    for name in ("embedding_size", "num_hidden_layers", "num_hidden_groups", "share_parameters"):
        before = getattr(weights.config, name)
        after = getattr(folded.config, name)
        rows.append((name, str(before), str(after)))
    sizes = [
        sum(array.size for array in model_weights.arrays.values())
        for model_weights in (weights, folded)
    ]
    rows.append(("parameters", *(f"{size:,}" for size in sizes)))
    rows.append(("megabytes in float32", *(f"{4 * size / 1e6:.1f}" for size in sizes)))
    rows.append(("variance of the first layer's inputs", "1.000", f"{explained:.3f}"))
    return "\n".join(f"{name:<38}{before:>12}{after:>12}" for name, before, after in rows)


def layer_errors(weights, model, tokenizer, texts: Sequence[str]) -> list[tuple[int, float]]:
    """For the embeddings and each layer of a folded model, the matched hidden state of its teacher and its error.

    The error is squared, over all tokens of the texts, and divided by the variance of the teacher's hidden state.
    """
    import numpy as np

    from albert_tf.formats import folding, pretrained
    from albert_tf.tasks.embedding.source import TextGroup, make_group_features
    from albert_tf.tasks.sequences import PairSettings

    teacher, _ = pretrained.build_model(weights)
    length = min(128, weights.config.max_position_embeddings)
    groups = [TextGroup("", (text,)) for text in texts]
    table = make_group_features(PairSettings(tokenizer, length), groups)
    rows = np.arange(len(table))
    names = ("input_ids", "segment_ids")
    features = table.batch(rows, int(table.lengths.max()), names)
    states_of_teacher = _hidden_states(teacher, features)
    states_of_folded = _hidden_states(model, features)

    # Of 6 layers folded into 3: the embeddings and layers 1, 2, 3 are compared with the teacher's states 0, 2, 4, 6.
    matched = folding.matched_layers(
        model.config.num_hidden_layers, weights.config.num_hidden_layers
    )
    return [
        (layer, folding.relative_error(state, states_of_teacher[layer]))
        for layer, state in zip(matched, states_of_folded, strict=True)
    ]


def _hidden_states(model, features) -> list:
    """The hidden states of all tokens, float [tokens, D]: the input of the first layer, and each layer's output."""
    from albert_tf.formats import folding

    is_token = features["input_mask"] == 1
    states = model.encoder(features, output_hidden_states=True)["hidden_states"]
    states = folding.layer_states(states, model.config)
    return [state.numpy()[is_token] for state in states]


def _table_of_errors(errors: Sequence[tuple[int, float]]) -> str:
    """How far the hidden states are from those of the model, before distillation."""
    lines = [f"{'hidden state':<38}{'of':>12}{'error':>12}"]
    lines += [
        f"{number or 'embeddings':<38}{layer:>12}{error:>12.3f}"
        for number, (layer, error) in enumerate(errors)
    ]
    return "\n".join(lines)
