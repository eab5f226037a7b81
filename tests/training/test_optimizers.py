"""Optimizers equal NumPy versions and that of tf-models-official; schedule and exclusions have the expected values."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.model.heads import AlbertForEmbedding, AlbertForPreTraining
from albert_tf.training import optimizers
from albert_tf.training.settings import OptimizerConfig
from tests.helpers import TINY

NAMES = ("some/kernel", "some/bias", "x/LayerNorm/gamma", "zero/kernel")
SHORT = {"learning_rate": 0.1, "num_train_steps": 20, "num_warmup_steps": 3}


def start_and_gradients(seed=0):
    rng = np.random.default_rng(seed)
    shapes = ((3, 4), (5,), (6,), (2, 7))
    start = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    start[3][:] = 0.0  # no norm: the ratio must be 1
    gradients = [[rng.normal(size=shape).astype(np.float32) for shape in shapes] for _ in range(5)]
    return start, gradients


def run_ours(config, start, gradients):
    variables = [tf.Variable(value) for value in start]
    optimizer = optimizers.create_optimizer(config, 8, dict(zip(NAMES, variables, strict=True)))
    for step in gradients:
        optimizer.apply_gradients(list(zip(step, variables, strict=True)))
    return [variable.numpy() for variable in variables], optimizer


def run_numpy(config, start, gradients, lamb):
    """lamb_optimizer.py:66-122 in float64, the rate of update k being the schedule at k + 1."""
    values = [value.astype(np.float64) for value in start]
    moments = [(np.zeros_like(value), np.zeros_like(value)) for value in values]
    for k, step in enumerate(gradients, start=1):
        warmed = k < config.num_warmup_steps
        share = k / config.num_warmup_steps if warmed else 1 - k / config.num_train_steps
        for i, gradient in enumerate(step):
            m = 0.9 * moments[i][0] + 0.1 * gradient
            v = 0.999 * moments[i][1] + 0.001 * np.square(gradient.astype(np.float64))
            moments[i] = m, v
            update = m / (np.sqrt(v) + 1e-6)
            ratio = 1.0
            if i in (0, 3):  # neither bias nor LayerNorm
                update = update + 0.01 * values[i]
                norms = np.linalg.norm(values[i]), np.linalg.norm(update)
                ratio = norms[0] / norms[1] if lamb and min(norms) > 0 else 1.0
            values[i] = values[i] - config.learning_rate * share * ratio * update
    return values


@pytest.mark.parametrize("kernel_elements", [1 << 16, 1])
@pytest.mark.parametrize("name", ["lamb", "adamw"])
def test_updates_equal_numpy(name, kernel_elements, monkeypatch):
    monkeypatch.setattr(optimizers, "_KERNEL_ELEMENTS", kernel_elements)
    config = OptimizerConfig(optimizer=name, **SHORT)
    start, gradients = start_and_gradients()
    actual, optimizer = run_ours(config, start, gradients)
    expected = run_numpy(config, start, gradients, lamb=name == "lamb")
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)
    assert type(optimizer).__name__.lower() == name
    assert all(np.abs(a - b).max() > 1e-3 for a, b in zip(actual, start, strict=True))


def test_muon_moves_kernels_of_blocks_by_orthogonal_matrices_and_all_else_as_adamw():
    rng = np.random.default_rng(5)
    kernel_name = "bert/encoder/transformer/group_0/inner_group_0/ffn_1/intermediate/dense/kernel"
    shapes = {kernel_name: (7, 3), "bert/embeddings/word_embeddings": (9, 4), "some/kernel": (2, 5)}
    start = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    gradients = [
        {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
        for _ in range(3)
    ]

    def trained(optimizer_name):
        config = OptimizerConfig(optimizer=optimizer_name, **SHORT)
        variables = {name: tf.Variable(value) for name, value in start.items()}
        optimizer = optimizers.create_optimizer(config, 8, variables)
        history = []
        for step in gradients:
            pairs = [(step[name], variable) for name, variable in variables.items()]
            optimizer.apply_gradients(pairs)
            history.append({name: variable.numpy() for name, variable in variables.items()})
        return history

    with_muon = trained("muon")
    with_adamw = trained("adamw")
    for ours, theirs in zip(with_muon, with_adamw, strict=True):
        for name in set(shapes) - {kernel_name}:
            np.testing.assert_array_equal(ours[name], theirs[name])

    value = start[kernel_name].astype(np.float64)
    momentum = np.zeros_like(value)
    rates = (0.1 / 3, 0.2 / 3, 0.1 * (1 - 3 / 20))
    for gradient, rate, found in zip(gradients, rates, with_muon, strict=True):
        momentum = 0.95 * momentum + gradient[kernel_name]
        left, _, right = np.linalg.svd(gradient[kernel_name] + 0.95 * momentum, full_matrices=False)
        moved = (value * (1 - 0.01 * rate) - found[kernel_name]) / (rate * 0.1 * 7**0.5)
        singular_values = np.diag(left.T @ moved @ right.T)
        assert np.all((singular_values > 0.6) & (singular_values < 1.3))
        np.testing.assert_allclose(
            left * singular_values @ right, moved, atol=1e-4
        )  # same directions
        value = found[kernel_name].astype(np.float64)


def test_muon_leaves_a_kernel_without_gradient_alone():
    kernel = tf.zeros([3, 5])
    np.testing.assert_array_equal(optimizers.orthogonalized(kernel), kernel)


def test_bias_corrected_lamb_equals_tf_models_official():
    from official.modeling.optimization.lamb import LAMB

    config = OptimizerConfig(**SHORT, bias_correction=True)
    start, gradients = start_and_gradients()
    actual, _ = run_ours(config, start, gradients)
    schedule = optimizers.WarmupPolynomialDecay(config, 0.1)
    variables = [tf.Variable(value, name=name) for name, value in zip(NAMES, start, strict=True)]
    excluded = ["LayerNorm", "layer_norm", "bias"]
    peer = LAMB(learning_rate=schedule, weight_decay_rate=0.01, exclude_from_weight_decay=excluded)
    for step in gradients:
        peer.apply_gradients(list(zip(step, variables, strict=True)))
    for a, b in zip(actual, variables, strict=True):
        np.testing.assert_allclose(a, b.numpy(), atol=2e-5)


def rates(config, updates):
    schedule = optimizers.WarmupPolynomialDecay(config, config.peak_learning_rate(4096))
    return [float(schedule(done)) for done in updates]


def test_schedule_equals_the_original():
    config = OptimizerConfig()
    first, last_of_warmup, after, end = rates(config, [0, 3123, 3124, 124_999])
    assert first == pytest.approx(0.00176 / 3125)
    assert last_of_warmup == pytest.approx(0.00176 * 3124 / 3125)
    assert after == pytest.approx(0.00176 * (1 - 3125 / 125_000))  # the step down to .001716
    assert end == 0.0


def test_the_power_changes_the_decay():
    config = OptimizerConfig(num_train_steps=10, num_warmup_steps=4, poly_power=2.0)
    expected = [0.00176 * 3 / 4, 0.00176 * 0.4**2, 0.00176 * 0.2**2]
    assert rates(config, [2, 5, 7]) == pytest.approx(expected)
    (first,) = rates(OptimizerConfig(num_train_steps=10, num_warmup_steps=0), [0])
    assert first == pytest.approx(0.00176 * 0.9)
    constant = OptimizerConfig(num_train_steps=10, num_warmup_steps=2, poly_power=0)
    assert rates(constant, [0, 1, 8]) == pytest.approx([0.00088, 0.00176, 0.00176])


def test_only_kernels_and_tables_decay():
    names = AlbertForPreTraining(TINY).named_variables()
    excluded = {name for name in names if not optimizers.is_decayed(name)}
    assert all(name.endswith(("bias", "gamma", "beta")) for name in excluded)
    decayed = set(names) - excluded
    assert all(name.endswith(("kernel", "embeddings", "output_weights")) for name in decayed)
    assert len(decayed) == 3 + 1 + 6 + 1 + 1 + 1  # tables, projection, block, pooler, both heads


def test_a_layer_norm_of_an_embedding_model_does_not_decay():
    modules = [{"kind": "dense", "size": 7, "activation": "tanh"}, {"kind": "layer_norm"}]
    config = TINY.replace(foreign={"sentence_embedding": {"modules": modules}})
    names = AlbertForEmbedding(config).named_variables()
    decayed = {name for name in names if optimizers.is_decayed(name)}
    of_modules = {name for name in names if name.startswith("embedding/modules/")}
    assert len(of_modules) == 4
    assert decayed & of_modules == {"embedding/modules/0/kernel"}


def test_clipping_scales_gradients_above_the_norm():
    gradients = [tf.constant([3.0, 0.0]), tf.constant([4.0])]
    clipped, norm = optimizers.clip_by_global_norm(gradients, [None, None], 1.0)
    assert float(norm) == 5.0
    np.testing.assert_allclose(clipped[0], [0.6, 0.0])
    for norm in (6.0, 0.0):
        untouched, _ = optimizers.clip_by_global_norm(gradients, [None, None], norm)
        np.testing.assert_allclose(untouched[1], [4.0])


def test_clipping_counts_every_embedding_row():
    table = tf.Variable(tf.zeros([2, 3]))
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(tf.gather(table, [0, 0, 1]) * 2.0)
    gradient = tape.gradient(total, table)
    rows = tf.reduce_sum(tf.square(gradient.values))
    _, norm = optimizers.clip_by_global_norm([tf.convert_to_tensor(gradient)], [rows], 1.0)
    expected = tf.linalg.global_norm([gradient])
    assert float(norm) == pytest.approx(float(expected))
    assert float(norm) == pytest.approx(6.0)  # added up first, it would be sqrt(60)


def test_a_norm_that_is_not_finite_stays_visible():
    clipped, _ = optimizers.clip_by_global_norm([tf.constant([1.0, np.inf])], [None], 1.0)
    assert not np.isfinite(clipped[0]).all()


def test_loss_scaling_skips_steps_that_are_not_finite():
    variable = tf.Variable([1.0, 2.0])
    config = OptimizerConfig(num_train_steps=10, num_warmup_steps=0)
    inner = optimizers.create_optimizer(config, 8, {"a/kernel": variable})
    wrapped = tf_keras.mixed_precision.LossScaleOptimizer(inner, initial_scale=8)
    wrapped.apply_gradients([(tf.constant([np.nan, 1.0]), variable)])
    np.testing.assert_array_equal(variable, [1.0, 2.0])  # skipped
    assert float(wrapped.loss_scale) == 4.0
    wrapped.apply_gradients([(tf.constant([1.0, 1.0]), variable)])
    assert not np.array_equal(variable, [1.0, 2.0])
