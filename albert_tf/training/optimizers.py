"""LAMB and AdamW as in the original, Muon, the learning-rate schedule, and the choice of variables with weight decay.

Source: original optimization.py and lamb_optimizer.py; LAMB is arXiv 1904.00962, here without bias correction. Muon is
Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks", with the scale and the weight decay of
Liu et al. 2025, arXiv 2502.16982, section 2.2.
"""

import functools
import re
from collections.abc import Callable, Iterable, Mapping

import tensorflow as tf
import tf_keras

from albert_tf.model import device
from albert_tf.training.settings import OptimizerConfig

# Released names of variables without weight decay and layer adaptation (original optimization.py:81,90 and
# lamb_optimizer.py:60-64). A LayerNorm among the modules of an embedding model has a number for its name.
_EXCLUDED = re.compile("LayerNorm|layer_norm|bias|/(gamma|beta)$")

# As in the original, optimization.py:73-79; the decay of the first moment, and what is added to the root of the second.
BETA_1 = 0.9
EPSILON = 1e-6
MAX_GRADIENT_NORM = 1.0  # to which gradients are clipped; 0 does not clip

# Variables of at least this size are updated by a compiled kernel; for smaller variables, compilation takes too long.
_KERNEL_ELEMENTS = 1 << 16


def is_decayed(released_name: str) -> bool:
    """Whether weight decay and LAMB's layer adaptation apply to a variable of this released name."""
    return not _EXCLUDED.search(released_name)


def factors_by_name(config: OptimizerConfig, released_names: Iterable[str]) -> dict[str, float]:
    """The factor of the learning rate of each variable; 0 for a frozen one.

    The projection of the embeddings belongs to them, and the pooler to the encoder. The factor of a group is used
    instead of the encoder's.
    """
    parts_of_variables = {name: _parts(name) for name in released_names}
    parts_of_model = {part for parts in parts_of_variables.values() for part in parts}
    missing = config.factors.keys() - parts_of_model
    if missing:
        reason = f"names {min(missing)}, but the model has {', '.join(sorted(parts_of_model))}"
        config.refuse("learning_rate_factors", reason)

    factors = {}
    for name, parts in parts_of_variables.items():
        factors_of_parts = [config.factors[part] for part in parts if part in config.factors]
        factors[name] = factors_of_parts[0] if factors_of_parts else 1.0
    if not any(factors.values()):
        config.refuse("learning_rate_factors", "freezes the whole model")
    return factors


def _parts(released_name: str) -> list[str]:
    """The parts of the model that a variable belongs to, the smallest first."""
    if re.match("bert/(embeddings|encoder/embedding_hidden_mapping_in)/", released_name):
        return ["embeddings"]
    groups = re.findall(r"^bert/encoder/transformer/(group_\d+)/", released_name)
    return [*groups, "encoder" if released_name.startswith("bert/") else "head"]


class Clock(tf.Module):
    """The seconds of all training steps of a run, in a variable that checkpoints contain, and their budget."""

    def __init__(self, minutes: float):
        super().__init__()
        self.budget = 60.0 * minutes
        first = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.seconds = tf.Variable(0.0, name="seconds", trainable=False, aggregation=first)

    def share(self) -> tf.Tensor:
        """The share of the budget that is used, float32."""
        return tf.minimum(self.seconds / self.budget, 1.0)

    def is_over(self) -> bool:
        """Whether nothing of the budget is left."""
        return float(self.seconds.numpy()) >= self.budget


class WarmupPolynomialDecay(tf_keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to the peak, then polynomial decay to 0 at the last step.

    The decay starts at step 0, so the rate drops at the end of the warm-up (original optimization.py:28-66). The first
    update is step 1, with the rate peak / num_warmup_steps, because the original increments its global step before it
    reads the rate.
    """

    def __init__(self, config: OptimizerConfig, peak: float, clock: Clock | None = None):
        super().__init__()
        self.config = config
        self.peak = peak
        self.clock = clock

    def __call__(self, updates_done):
        """The learning rate, float32, of the update that follows this number of updates, or of now by the clock."""
        if self.clock:
            updates_done = self.config.num_train_steps * self.clock.share()
        return self.at(updates_done)

    def at(self, updates_done):
        """The learning rate, float32, of the update that follows this number of updates."""
        config = self.config
        step = tf.cast(updates_done, tf.float32) + 1.0
        remaining = 1.0 - tf.minimum(step / config.num_train_steps, 1.0)
        decayed = self.peak * remaining**config.poly_power
        if not config.num_warmup_steps:
            return decayed
        warmed = self.peak * step / config.num_warmup_steps
        return tf.where(step < config.num_warmup_steps, warmed, decayed)

    def in_words(self) -> str:
        """The learning rates for a person to read."""
        last = self.config.num_train_steps
        warmup = self.config.num_warmup_steps
        share = f"{100 * warmup / last:.3g} % of the time" if self.clock else f"{warmup} steps"
        end = f"after {self.clock.budget / 60:g} minutes" if self.clock else f"at step {last}"
        decay = f"decay to 0 {end}" if self.config.poly_power else f"constant, ends {end}"
        return f"warm-up to {self.peak:g} over {share}, {decay}"


class AdamW(tf_keras.optimizers.Optimizer):
    """Adam with decoupled weight decay, by default without bias correction (original optimization.py:115-198).

    Names of the variables decide which of them decay; `factors` of the learning rate have the same names.
    """

    def __init__(
        self,
        config: OptimizerConfig,
        learning_rate,
        variables: Mapping[str, tf.Variable],
        factors: Mapping[str, float],
    ):
        # Keras would compile every update with XLA; here the training step decides what is compiled.
        super().__init__(name=type(self).__name__, jit_compile=False)
        self.config = config
        self.schedule = learning_rate
        self._learning_rate = self._build_learning_rate(learning_rate)
        self._names = {variable.ref(): name for name, variable in variables.items()}
        self._factors_by_name = factors
        self.build(list(variables.values()))

    def trains(self, variable: tf.Variable) -> bool:
        """Whether a variable is not frozen."""
        return variable.ref() in self._names

    def build(self, var_list):
        """Creates both moments of every variable, as zeros."""
        super().build(var_list)
        if getattr(self, "_built", False):
            return  # Keras builds again at the first update
        self._built = True
        names = [self._names[variable.ref()] for variable in var_list]
        self._decayed = [is_decayed(name) for name in names]
        self._factors = [self._factors_by_name[name] for name in names]
        self._first_moments = [self.add_variable_from_reference(v, "m") for v in var_list]
        self._second_moments = [self.add_variable_from_reference(v, "v") for v in var_list]

    def update_step(self, gradient, variable):
        """Updates one variable and its moments."""
        index = self._index_dict[self._var_key(variable)]
        first_moment = self._first_moments[index]
        second_moment = self._second_moments[index]
        decayed = self._decayed[index]

        # All of the shape of the variable, [768, 3072].
        compute = functools.partial(_moments_and_update, self.config)
        if variable.shape.num_elements() >= _KERNEL_ELEMENTS:
            compute = _moments_and_update_kernel(self.config)
        step = tf.cast(self.iterations + 1, tf.float32)
        new_first, new_second, update = compute(
            tf.convert_to_tensor(gradient),
            tf.convert_to_tensor(first_moment),
            tf.convert_to_tensor(second_moment),
            tf.convert_to_tensor(variable),
            step,
            decayed,
        )

        first_moment.assign(new_first)
        second_moment.assign(new_second)
        rate = self._factors[index] * tf.cast(self.learning_rate, tf.float32)
        variable.assign_sub(rate * self._trust_ratio(variable, update, decayed) * update)

    def _trust_ratio(self, variable, update, adapted: bool):
        del variable, update, adapted
        return 1.0


def _moments_and_update(config, gradient, m, v, variable, step, decayed: bool):
    """The new moments (m and v in the paper), and the update of a variable before learning rate and trust ratio."""
    m = BETA_1 * m + (1.0 - BETA_1) * gradient
    v = config.beta_2 * v + (1.0 - config.beta_2) * tf.square(gradient)
    m_hat = m
    v_hat = v
    if config.bias_correction:
        m_hat = m / (1.0 - BETA_1**step)
        v_hat = v / (1.0 - config.beta_2**step)
    update = m_hat / (tf.sqrt(v_hat) + EPSILON)
    if decayed:
        update += config.weight_decay_rate * variable
    return m, v, update


@functools.cache
def _moments_and_update_kernel(config: OptimizerConfig) -> Callable:
    return device.compiled(functools.partial(_moments_and_update, config))


class Lamb(AdamW):
    """AdamW whose update of each variable is scaled by |variable| / |update| (original lamb_optimizer.py:66-122)."""

    def _trust_ratio(self, variable, update, adapted: bool):
        if not adapted:
            return 1.0
        weight_norm = tf.sqrt(square_sum(variable))
        update_norm = tf.sqrt(square_sum(update))
        both_positive = (weight_norm > 0) & (update_norm > 0)
        return tf.where(both_positive, tf.math.divide_no_nan(weight_norm, update_norm), 1.0)


# The kernels of the blocks, which Muon updates; tables, heads, biases and LayerNorms are AdamW's.
_BLOCK_KERNEL = re.compile("^bert/encoder/transformer/.*/kernel$")
MOMENTUM = 0.95
# The polynomial of the Newton-Schulz iteration maps singular values in (0, 1] to about .7 to 1.2 in five steps.
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
_NEWTON_SCHULZ_STEPS = 5
# The root mean square of an update, before the learning rate; half of that in arXiv 2502.16982, because folding learns
# better so at the learning rate of AdamW (docs/results/fold.md).
UPDATE_SIZE = 0.1


def orthogonalized(matrix_IO: tf.Tensor) -> tf.Tensor:
    """The matrix with all its singular values set to about 1, and a zero matrix unchanged; float32, [I, O]."""
    a, b, c = _NEWTON_SCHULZ
    rows, columns = matrix_IO.shape
    is_tall = rows > columns
    if is_tall:  # the products below then have the smaller size
        matrix_IO = tf.transpose(matrix_IO)
    result_IO = matrix_IO / (tf.sqrt(square_sum(matrix_IO)) + 1e-7)
    for _ in range(_NEWTON_SCHULZ_STEPS):
        gram_II = tf.matmul(result_IO, result_IO, transpose_b=True)
        polynomial_II = b * gram_II + c * tf.matmul(gram_II, gram_II)
        result_IO = a * result_IO + tf.matmul(polynomial_II, result_IO)
    return tf.transpose(result_IO) if is_tall else result_IO


class Muon(AdamW):
    """Muon for the kernels of the blocks, and AdamW for all other variables, at one learning rate.

    A kernel's update is its momentum with all singular values set to about 1. Its second moment stays 0.
    """

    def build(self, var_list):
        """Creates the moments of AdamW; the first one of a kernel is its momentum."""
        super().build(var_list)
        names = [self._names[variable.ref()] for variable in var_list]
        self._is_block_kernel = [bool(_BLOCK_KERNEL.search(name)) for name in names]

    def update_step(self, gradient, variable):
        """Updates one variable and its moments."""
        index = self._index_dict[self._var_key(variable)]
        if not self._is_block_kernel[index]:
            super().update_step(gradient, variable)
            return
        momentum = self._first_moments[index]
        new_momentum = MOMENTUM * momentum + gradient
        momentum.assign(new_momentum)

        # A matrix of I rows and O columns with singular values of 1 has a root mean square of 1 / sqrt(max(I, O)).
        scale = UPDATE_SIZE * max(variable.shape) ** 0.5
        update = scale * orthogonalized(gradient + MOMENTUM * new_momentum)
        update += self.config.weight_decay_rate * variable
        rate = self._factors[index] * tf.cast(self.learning_rate, tf.float32)
        variable.assign_sub(rate * update)


def square_sum(tensor: tf.Tensor) -> tf.Tensor:
    """The sum of the squares of a tensor's values, in one pass; tf.norm would store the squares first."""
    return 2.0 * tf.nn.l2_loss(tensor)


def clip_by_global_norm(
    gradients: list[tf.Tensor], slice_square_sums: list[tf.Tensor | None], max_norm: float
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """The dense gradients, scaled so that their global norm is at most `max_norm` (0: any), and the norm before that.

    For a gradient that was a set of rows (of an embedding table), `slice_square_sums` has the sum of the squares of the
    rows before those of the same id were added up: the norm counts every row separately, as the original's does
    (tf.clip_by_global_norm on IndexedSlices). For other gradients, it has None.
    """
    square_sums = [
        square_sum(gradient) if rows is None else rows
        for gradient, rows in zip(gradients, slice_square_sums, strict=True)
    ]
    norm = tf.sqrt(tf.add_n(square_sums))
    if not max_norm:
        return gradients, norm
    scale = max_norm / tf.maximum(norm, max_norm)
    # If the norm is not finite, all gradients become not finite, which the training loop and loss scaling detect.
    scale = tf.where(tf.math.is_finite(norm), scale, norm)
    return [gradient * scale for gradient in gradients], norm


def create_optimizer(
    config: OptimizerConfig,
    train_batch_size: int,
    named_variables: Mapping[str, tf.Variable],
    clock: Clock | None = None,
) -> AdamW:
    """The optimizer that the settings name, with its schedule; `train_batch_size` is the global batch."""
    schedule = WarmupPolynomialDecay(config, config.peak_learning_rate(train_batch_size), clock)
    factors = factors_by_name(config, named_variables)
    trained = {name: named_variables[name] for name in factors if factors[name]}
    optimizer_class = {"lamb": Lamb, "adamw": AdamW, "muon": Muon}[config.optimizer]
    return optimizer_class(config, schedule, trained, factors)
