"""The encoder equals a NumPy version, has the published counts, and its plain form has the same gradients."""

import numpy as np
import pytest
import scipy.special
import tensorflow as tf

from albert_tf.core.errors import UserError
from albert_tf.model import encoder as modeling
from albert_tf.model.config import SHARING_STRATEGIES, AlbertConfig
from albert_tf.model.heads import AlbertForPreTraining
from tests.helpers import BATCH, PREDICTIONS, noisy, random_features

# --- NumPy version of the whole forward pass, from the paper ---


def numpy_layer_norm(x, v, name):
    mean = x.mean(-1, keepdims=True)
    variance = x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-12) * v[name + "/gamma"] + v[name + "/beta"]


def numpy_dense(x, v, name):
    return x @ v[name + "/kernel"] + v[name + "/bias"]


NUMPY_ACTIVATIONS = {
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "gelu_exact": lambda x: 0.5 * x * (1 + scipy.special.erf(x / np.sqrt(2))),
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "linear": lambda x: x,
}


def numpy_block(x, mask, config, v, attention, ffn):
    heads = config.num_attention_heads

    def split(y):  # [B, L, D] -> [B, N, L, H]
        return y.reshape(*y.shape[:2], heads, -1).transpose(0, 2, 1, 3)

    inputs = (f"{attention}attention_1/self/{name}" for name in ("query", "key", "value"))
    q, k, w = (split(numpy_dense(x, v, name)) for name in inputs)
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(config.head_size)
    scores = scores + (1.0 - mask[:, None, None, :]) * -10000.0
    probabilities = np.exp(scores - scores.max(-1, keepdims=True))
    probabilities /= probabilities.sum(-1, keepdims=True)
    context = (probabilities @ w).transpose(0, 2, 1, 3).reshape(x.shape)
    context = numpy_dense(context, v, f"{attention}attention_1/output/dense")
    x = numpy_layer_norm(context + x, v, f"{attention}LayerNorm")
    activation = NUMPY_ACTIVATIONS[config.hidden_act]
    inner = activation(numpy_dense(x, v, f"{ffn}ffn_1/intermediate/dense"))
    inner = numpy_dense(inner, v, f"{ffn}ffn_1/intermediate/output/dense")
    return numpy_layer_norm(inner + x, v, f"{ffn}LayerNorm_1"), probabilities


def numpy_encoder(features, config, v):
    """Hidden states, attention probabilities of all layers, and the pooled output, in float64."""
    e = "bert/embeddings/"
    x = v[e + "word_embeddings"][features["input_ids"]]
    x = x + v[e + "token_type_embeddings"][features["segment_ids"]]
    x = x + v[e + "position_embeddings"][: x.shape[1]]
    x = numpy_layer_norm(x, v, e + "LayerNorm")
    if config.embedding_size != config.hidden_size:
        x = numpy_dense(x, v, "bert/encoder/embedding_hidden_mapping_in")
    layers = [x]
    attentions = []
    for layer in range(config.num_hidden_layers):
        group = int(layer / config.num_hidden_layers * config.num_hidden_groups)
        attention_group = group if config.share_parameters in ("all", "attention") else layer
        ffn_group = group if config.share_parameters in ("all", "ffn") else layer
        for inner in range(config.inner_group_num):
            name = "bert/encoder/transformer/group_{}/inner_group_{}/"
            attention = name.format(attention_group, inner)
            ffn = name.format(ffn_group, inner)
            x, probabilities = numpy_block(x, features["input_mask"], config, v, attention, ffn)
            layers.append(x)
            attentions.append(probabilities)
    return layers, attentions, np.tanh(numpy_dense(x[:, 0], v, "bert/pooler/dense"))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_hidden_groups": 2, "inner_group_num": 2},
        {"share_parameters": "attention"},
        {"share_parameters": "ffn", "num_hidden_groups": 3},
        {"share_parameters": "none", "hidden_act": "relu"},
        {"embedding_size": 20, "hidden_act": "tanh"},
        {"hidden_act": "linear", "type_vocab_size": 5},
        {"hidden_act": "gelu_exact"},
    ],
    ids=str,
)
def test_forward_pass_equals_numpy(tiny, changes):
    config = tiny.replace(**changes)
    model = noisy(AlbertForPreTraining(config))
    features = random_features(BATCH)
    outputs = model(features)
    values = {
        name: variable.numpy().astype(np.float64)
        for name, variable in model.named_variables().items()
    }
    layers, attentions, pooled = numpy_encoder(features, config, values)
    assert len(outputs["all_layers"]) == config.num_blocks
    np.testing.assert_allclose(np.stack(outputs["all_layers"]), np.stack(layers[1:]), atol=2e-5)
    encoded = model.encoder(features, output_hidden_states=True, output_attentions=True)
    np.testing.assert_allclose(np.stack(encoded["hidden_states"]), np.stack(layers), atol=2e-5)
    np.testing.assert_allclose(np.stack(encoded["attentions"]), np.stack(attentions), atol=2e-5)
    np.testing.assert_allclose(outputs["pooled_output"], pooled, atol=2e-5)

    masked = np.take_along_axis(layers[-1], features["masked_lm_positions"][..., None], axis=1)
    head = "cls/predictions/"
    activation = NUMPY_ACTIVATIONS[config.hidden_act]
    masked = activation(numpy_dense(masked, values, head + "transform/dense"))
    masked = numpy_layer_norm(masked, values, head + "transform/LayerNorm")
    logits = masked @ values["bert/embeddings/word_embeddings"].T + values[head + "output_bias"]
    assert outputs["masked_lm_logits"].shape == (BATCH, PREDICTIONS, config.vocab_size)
    np.testing.assert_allclose(outputs["masked_lm_logits"], logits, atol=5e-5)
    order = "cls/seq_relationship/"
    logits = pooled @ values[order + "output_weights"].T + values[order + "output_bias"]
    np.testing.assert_allclose(outputs["sentence_order_logits"], logits, atol=2e-5)


def count(config: AlbertConfig) -> tuple[int, int]:
    """Parameters of the encoder, and with both heads; in a graph, so that nothing is allocated."""
    with tf.Graph().as_default():
        model = AlbertForPreTraining(config)
        return model.encoder.count_params(), model.count_params()


@pytest.mark.parametrize(
    ("name", "core", "with_heads"),
    [
        ("albert-base-v2", 11_683_584, 11_813_810),
        ("albert-large-v1", 17_683_968, 17_847_474),
        ("albert-xlarge-v2", 58_724_864, 59_021_490),
        ("albert-xxlarge-v1", 222_595_584, 223_158_450),
        ("bert-base", 109_081_344, 109_705_010),
        ("bert-large", 334_607_360, 335_691_058),
    ],
)
def test_named_sizes_have_the_published_counts(name, core, with_heads):
    assert count(AlbertConfig.from_name(name)) == (core, with_heads)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "core"),
    [
        ({"embedding_size": 64, "share_parameters": "none"}, 87_648_000),
        ({"embedding_size": 768, "share_parameters": "none"}, 109_081_344),
        ({"embedding_size": 64}, 9_681_408),
        ({"embedding_size": 768}, 31_114_752),
        ({"embedding_size": 768, "share_parameters": "attention"}, 83_078_400),
        ({"embedding_size": 768, "share_parameters": "ffn"}, 57_117_696),
        ({"embedding_size": 128, "share_parameters": "attention"}, 63_647_232),
        ({"embedding_size": 128, "share_parameters": "ffn"}, 37_686_528),
        ({"num_hidden_groups": 2}, 18_771_456),
        ({"num_hidden_groups": 4}, 32_947_200),
        ({"num_hidden_groups": 12}, 89_650_176),
    ],
    ids=str,
)
def test_sharing_rows_have_the_papers_counts(changes, core):
    assert count(AlbertConfig.from_name("albert-base-v2", **changes))[0] == core


def test_padding_changes_no_output_of_real_tokens(tiny):
    model = noisy(AlbertForPreTraining(tiny))
    features = random_features(BATCH)
    expected = model(features)["sequence_output"].numpy()
    repadded = dict(features)
    repadded["input_ids"] = np.where(features["input_mask"], features["input_ids"], 77)
    real = features["input_mask"].astype(bool)
    actual = model(repadded)["sequence_output"].numpy()
    np.testing.assert_allclose(actual[real], expected[real], atol=1e-6)
    assert not np.allclose(actual[~real], expected[~real], atol=1e-3)


def test_names_of_inputs_of_other_libraries_mean_the_same(tiny):
    call = noisy(AlbertForPreTraining(tiny))
    features = random_features(BATCH)
    expected = call(features)["pooled_output"]
    ids, mask, segments = (features[name] for name in ("input_ids", "input_mask", "segment_ids"))
    assert not np.allclose(call({"input_ids": ids})["pooled_output"], expected)
    for names in (
        ("input_ids", "attention_mask", "token_type_ids"),
        ("token_ids", "padding_mask", "segment_ids"),
        ("input_word_ids", "input_mask", "input_type_ids"),
    ):
        foreign = dict(zip(names, (ids, mask.astype(bool), segments), strict=True))
        np.testing.assert_array_equal(call(foreign)["pooled_output"], expected)
    with pytest.raises(UserError, match="attention_mask is another name of input_mask: give one"):
        call({"input_ids": ids, "attention_mask": mask, "input_mask": mask})


@pytest.mark.parametrize(
    ("rates", "sites"),
    [
        ({"hidden_dropout_prob": 0.1}, 1 + 2 * 3),
        ({"attention_probs_dropout_prob": 0.1}, 3),
        ({"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}, 1 + 3 * 3),
        ({}, 0),
    ],
    ids=str,
)
def test_dropout_is_applied_once_at_each_site(tiny, rates, sites, monkeypatch):
    seeds = []
    real = tf.nn.experimental.stateless_dropout

    def counted(tensor, rate, seed, **options):
        seeds.append(tuple(np.array(seed)))
        return real(tensor, rate, seed, **options)

    monkeypatch.setattr(tf.nn.experimental, "stateless_dropout", counted)
    model = modeling.AlbertEncoder(tiny.replace(**rates))
    features = random_features(BATCH)
    model(features, training=True, seed=[1, 2])
    assert len(seeds) == len(set(seeds)) == sites  # no two sites drop the same positions
    model(features, training=False)
    assert len(seeds) == sites


def test_dropout_depends_only_on_its_seed(tiny):
    model = modeling.AlbertEncoder(tiny.replace(hidden_dropout_prob=0.3))
    features = random_features(BATCH)

    def output(seed):
        return model(features, training=True, seed=seed)["pooled_output"].numpy()

    np.testing.assert_array_equal(output([1, 2]), output([1, 2]))
    assert not np.allclose(output([1, 2]), output([1, 3]))
    assert not np.allclose(output(None), output(None))


SHAPES = [
    {},
    {"embedding_size": 20},
    {"num_hidden_groups": 3},
    {"inner_group_num": 2, "hidden_act": "relu"},
]
GRADIENT_TOLERANCE = {"float32": 2e-5, "mixed_bfloat16": 5e-2, "mixed_float16": 1e-2}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "strategy", "policy"),
    [
        *zip(SHAPES, SHARING_STRATEGIES, ["float32"] * 4, strict=True),
        *zip(SHAPES[::-1], SHARING_STRATEGIES, ["mixed_bfloat16", "float32"] * 2, strict=True),
        (SHAPES[1], "all", "mixed_float16"),
    ],
    ids=str,
)
def test_plain_and_fast_form_have_the_same_values_and_gradients(tiny, shape, strategy, policy):
    dropout = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.1}
    config = tiny.replace(share_parameters=strategy, **shape, **dropout)
    features = random_features(BATCH)

    def values_and_gradients(plain, recompute):
        encoder = modeling.AlbertEncoder(
            config, dtype=policy, plain=plain, recompute_activations=recompute, seed=4
        )
        noisy(encoder)
        with tf.GradientTape() as tape:
            outputs = encoder(features, training=True, seed=[5, 6])
            values = [*outputs["all_layers"], outputs["pooled_output"]]
            total = tf.add_n([tf.reduce_mean(value**3) for value in values])
        # A bias of keys adds the same to all scores of a query: its gradient is nothing but rounding errors.
        variables = [v for name, v in encoder.named_variables().items() if "key/bias" not in name]
        gradients = map(tf.convert_to_tensor, tape.gradient(total, variables))
        return [tensor.numpy() for tensor in [*values, *gradients]]

    expected = values_and_gradients(plain=True, recompute=False)
    for recompute in (False, True):
        actual = values_and_gradients(plain=False, recompute=recompute)
        assert len(actual) == len(expected)
        for ours, theirs in zip(actual, expected, strict=True):
            largest = np.abs(theirs).max()
            np.testing.assert_allclose(ours, theirs, atol=GRADIENT_TOLERANCE[policy] * largest)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_keeps_norms_and_logits_in_float32(tiny, policy):
    exact = noisy(AlbertForPreTraining(tiny))
    mixed = AlbertForPreTraining(tiny, dtype=policy)
    mixed.set_weights(exact.get_weights())
    features = random_features(BATCH)
    expected = exact(features)
    actual = mixed(features)
    for name in ("sequence_output", "pooled_output", "masked_lm_logits", "sentence_order_logits"):
        assert actual[name].dtype == tf.float32, name
        assert not np.array_equal(actual[name], expected[name]), name  # the precision differs
        np.testing.assert_allclose(actual[name], expected[name], atol=0.25)
    block = mixed.encoder.attention_blocks[0][0]
    assert block.compute_dtype == policy.removeprefix("mixed_")
    assert block.layer_norm.compute_dtype == "float32"
    assert {variable.dtype for variable in mixed.trainable_variables} == {tf.float32}
