"""The ALBERT encoder, from piece ids to hidden states; read it from top to bottom.

Shape legend of the whole package:
  B batch, L length (also M: the positions attended to), E embedding width, D hidden width, N attention heads,
  H head width, F feed-forward width, P masked positions, V vocabulary, C choices or classes.

Every variable exists as soon as a layer is constructed, and `named_variables` gives it under its name in the
released checkpoints. Dropout is a function of a seed, so that a resumed run draws what an uninterrupted one draws.

Source: paper, section 3; original modeling.py.
"""

import collections
import itertools
from collections.abc import Callable, Iterator

import tensorflow as tf
import tf_keras

from albert_tf.core.errors import UserError
from albert_tf.model import kernels
from albert_tf.model.config import AlbertConfig
from albert_tf.model.weight_sharing import SharedWeights

ACTIVATIONS = {
    "gelu": lambda tensor: tf.nn.gelu(
        tensor, approximate=True
    ),  # tanh form, original modeling.py:299-312
    "relu": tf.nn.relu,
    "tanh": tf.tanh,
    "linear": tf.identity,
}


class Initializers:
    """Start values from one seed: truncated normal of the configured range, a new stream for each variable."""

    def __init__(self, config: AlbertConfig, seed: int):
        self._range = config.initializer_range
        self._seeds = itertools.count(1000 * seed)

    def truncated_normal(self) -> tf_keras.initializers.Initializer:
        """The initializer of the next variable (original modeling.py:442-444)."""
        return tf_keras.initializers.TruncatedNormal(stddev=self._range, seed=next(self._seeds))


def dense(
    input_width: int,
    width: int,
    initializers: Initializers,
    dtype,
    activation=None,
    use_bias: bool = True,
) -> tf_keras.layers.Dense:
    """A dense layer whose variables exist already."""
    layer = tf_keras.layers.Dense(
        width,
        activation=activation,
        use_bias=use_bias,
        kernel_initializer=initializers.truncated_normal(),
        dtype=dtype,
    )
    layer.build([None, input_width])
    return layer


def dropout(tensor: tf.Tensor, rate: float, seed: tf.Tensor | None) -> tf.Tensor:
    """Zeroes a share `rate` of the values and scales the others up; does nothing without a seed.

    Args:
      tensor: float tensor of any shape.
      rate: share that is dropped.
      seed: int32 [2], or None outside training.
    """
    if seed is None or rate == 0.0:
        return tensor
    return tf.nn.experimental.stateless_dropout(tensor, rate, seed, rng_alg="philox")


def dropper(rate: float, seed: tf.Tensor | None) -> Callable[[tf.Tensor], tf.Tensor] | None:
    """`dropout` of that rate and seed as a function of the tensor; None where it would do nothing."""
    return None if seed is None or rate == 0.0 else lambda tensor: dropout(tensor, rate, seed)


def fold_seed(seed: tf.Tensor | None, site: int) -> tf.Tensor | None:
    """A seed of its own for one dropout site; None stays None."""
    return None if seed is None else tf.random.experimental.stateless_fold_in(seed, site)


def new_seed() -> tf.Tensor:
    """A seed, int32 [2], from TensorFlow's global generator, for callers that bring none."""
    return tf.random.uniform([2], maxval=2**31 - 1, dtype=tf.int32)


class LayerNorm(tf_keras.layers.Layer):
    """Normalises the last axis, in float32 whatever the policy (original modeling.py:429-432)."""

    def __init__(self, width: int, epsilon: float):
        super().__init__(dtype="float32")
        self.epsilon = epsilon
        self.gamma = self.add_weight("gamma", [width], initializer="ones")
        self.beta = self.add_weight("beta", [width], initializer="zeros")

    def call(self, tensor):
        """[..., width] of any float type -> [..., width] float32."""
        return kernels.norm(tensor, self.gamma, self.beta, self.epsilon)

    def named_variables(self) -> dict[str, tf.Variable]:
        """The variables under their released names."""
        return {"beta": self.beta, "gamma": self.gamma}


class Embeddings(tf_keras.layers.Layer):
    """Sum of word, segment and position embeddings, LayerNorm, dropout; float32, all at width E."""

    def __init__(self, config: AlbertConfig, initializers: Initializers):
        super().__init__(dtype="float32", name="embeddings")
        self.config = config

        def table(name: str, rows: int) -> tf.Variable:
            shape = [rows, config.embedding_size]
            return self.add_weight(name, shape, initializer=initializers.truncated_normal())

        self.word_embeddings = table("word_embeddings", config.vocab_size)
        self.token_type_embeddings = table("token_type_embeddings", config.type_vocab_size)
        self.position_embeddings = table("position_embeddings", config.max_position_embeddings)
        self.layer_norm = LayerNorm(config.embedding_size, config.layer_norm_eps)

    def call(self, input_ids, segment_ids, seed=None):
        """Ids [B, L] of pieces and segments -> [B, L, E]."""
        words_BLE = tf.gather(self.word_embeddings, input_ids)
        # A gather, not a product with one-hot vectors: its gradient holds a row for every position, and the norm
        # that gradients are clipped to counts those rows one by one, as in the original on CPU and GPU.
        types_BLE = tf.gather(self.token_type_embeddings, segment_ids)
        length = input_ids.shape[1] or tf.shape(input_ids)[1]
        positions_LE = self.position_embeddings[:length]
        normed_BLE = self.layer_norm(words_BLE + types_BLE + positions_LE)
        return dropout(normed_BLE, self.config.hidden_dropout_prob, seed)

    def named_variables(self) -> dict[str, tf.Variable]:
        """The variables under their released names."""
        return {
            "word_embeddings": self.word_embeddings,
            "token_type_embeddings": self.token_type_embeddings,
            "position_embeddings": self.position_embeddings,
            **prefixed("LayerNorm/", self.layer_norm.named_variables()),
        }


class AttentionBlock(tf_keras.layers.Layer):
    """Self-attention with its output projection, dropout, residual and LayerNorm.

    It owns 4 (D^2 + D) + 2 D values: what the sharing strategy `attention` shares.
    """

    def __init__(self, config: AlbertConfig, initializers: Initializers, dtype, name: str):
        super().__init__(dtype=dtype, name=name)
        self.config = config
        width = config.hidden_size
        self.query = dense(width, width, initializers, self.dtype_policy)
        self.key = dense(width, width, initializers, self.dtype_policy)
        self.value = dense(width, width, initializers, self.dtype_policy)
        self.output_dense = dense(width, width, initializers, self.dtype_policy)
        self.layer_norm = LayerNorm(width, config.layer_norm_eps)

    def shared_weights(self) -> list[tuple[tf.Tensor, tf.DType]]:
        """What `call` computes with, as `SharedWeights` takes it; query, key and value are one matrix product."""
        layers = (self.query, self.key, self.value)
        kernel_DT = tf.concat([layer.kernel for layer in layers], axis=-1)
        bias_T = tf.concat([layer.bias for layer in layers], axis=-1)
        return _weights(kernel_DT, bias_T, self.output_dense, self.layer_norm, self.compute_dtype)

    def call(self, hidden_BLD, weights, adder_B11M, seed=None, training=False):
        """Hidden states [B, L, D], weights and what is added to the scores [B, 1, 1, M] -> [B, L, D] float32."""
        config = self.config
        kernel_DT, bias_T, output_kernel_DD, output_bias_D, gamma_D, beta_D = weights
        hidden_XD = tf.reshape(hidden_BLD, [-1, config.hidden_size])
        context_XD = kernels.attention(
            tf.matmul(hidden_XD, kernel_DT),
            bias_T,
            adder_B11M,
            config.num_attention_heads,
            drop=dropper(config.attention_probs_dropout_prob, fold_seed(seed, 0)),
            training=training,
        )
        output_XD = kernels.residual_norm(
            tf.matmul(context_XD, output_kernel_DD),
            output_bias_D,
            hidden_XD,
            gamma_D,
            beta_D,
            config.layer_norm_eps,
            drop=dropper(config.hidden_dropout_prob, fold_seed(seed, 1)),
            training=training,
        )
        return tf.reshape(output_XD, tf.shape(hidden_BLD))

    def named_variables(self) -> dict[str, tf.Variable]:
        """The variables under their released names."""
        return {
            **prefixed("attention_1/self/query/", dense_variables(self.query)),
            **prefixed("attention_1/self/key/", dense_variables(self.key)),
            **prefixed("attention_1/self/value/", dense_variables(self.value)),
            **prefixed("attention_1/output/dense/", dense_variables(self.output_dense)),
            **prefixed("LayerNorm/", self.layer_norm.named_variables()),
        }


class FeedForwardBlock(tf_keras.layers.Layer):
    """Two dense layers with an activation between, dropout, residual and LayerNorm.

    It owns 2 D F + F + D + 2 D values: what the sharing strategy `ffn` shares.
    """

    def __init__(self, config: AlbertConfig, initializers: Initializers, dtype, name: str):
        super().__init__(dtype=dtype, name=name)
        self.config = config
        hidden, inner = config.hidden_size, config.intermediate_size
        self.activation = ACTIVATIONS[config.hidden_act]
        self.intermediate = dense(hidden, inner, initializers, self.dtype_policy)
        self.output_dense = dense(inner, hidden, initializers, self.dtype_policy)
        self.layer_norm = LayerNorm(hidden, config.layer_norm_eps)

    def shared_weights(self) -> list[tuple[tf.Tensor, tf.DType]]:
        """What `call` computes with, as `SharedWeights` takes it."""
        kernel_DF, bias_F = self.intermediate.kernel, self.intermediate.bias
        return _weights(kernel_DF, bias_F, self.output_dense, self.layer_norm, self.compute_dtype)

    def call(self, hidden_BLD, weights, seed=None, training=False):
        """Hidden states [B, L, D] and weights -> [B, L, D] float32."""
        kernel_DF, bias_F, output_kernel_FD, output_bias_D, gamma_D, beta_D = weights
        hidden_XD = tf.reshape(hidden_BLD, [-1, self.config.hidden_size])
        inner_XF = kernels.bias_activation(
            tf.matmul(hidden_XD, kernel_DF), bias_F, self.activation, training=training
        )
        output_XD = kernels.residual_norm(
            tf.matmul(inner_XF, output_kernel_FD),
            output_bias_D,
            hidden_XD,
            gamma_D,
            beta_D,
            self.config.layer_norm_eps,
            drop=dropper(self.config.hidden_dropout_prob, seed),
            training=training,
        )
        return tf.reshape(output_XD, tf.shape(hidden_BLD))

    def named_variables(self) -> dict[str, tf.Variable]:
        """The variables under their released names."""
        return {
            **prefixed("ffn_1/intermediate/dense/", dense_variables(self.intermediate)),
            **prefixed("ffn_1/intermediate/output/dense/", dense_variables(self.output_dense)),
            **prefixed("LayerNorm_1/", self.layer_norm.named_variables()),
        }


def _weights(kernel, bias, output_dense, layer_norm, dtype) -> list[tuple[tf.Tensor, tf.DType]]:
    """Weights of a block, each with the type that it is used in."""
    dense_weights = (kernel, bias, output_dense.kernel, output_dense.bias)
    norm_weights = (layer_norm.gamma, layer_norm.beta)
    return [(one, dtype) for one in dense_weights] + [(one, tf.float32) for one in norm_weights]


class AlbertEncoder(tf_keras.Model):
    """The encoder: embeddings, projection to the hidden width, blocks with shared parameters, pooler.

    Args:
      config: the sizes.
      dtype: a tf_keras dtype policy (float32, mixed_bfloat16, mixed_float16); None takes the global one.
      recompute_activations: whether each block is computed again in the backward pass, to save memory.
      seed: of the start values.
    """

    def __init__(
        self,
        config: AlbertConfig,
        *,
        dtype=None,
        recompute_activations: bool = False,
        seed: int = 0,
        name: str = "albert_encoder",
    ):
        super().__init__(dtype=dtype, name=name)
        self.config = config
        self._recompute = recompute_activations
        initializers = Initializers(config, seed)
        self.embeddings = Embeddings(config, initializers)
        self.projection = None
        if config.embedding_size != config.hidden_size:
            self.projection = dense(
                config.embedding_size, config.hidden_size, initializers, self.dtype_policy
            )
        layers = range(config.num_hidden_layers)
        num_attention_groups = 1 + max(map(config.attention_group_of_layer, layers))
        num_ffn_groups = 1 + max(map(config.ffn_group_of_layer, layers))
        # [group][inner group]; a group is one copy of the variables, whatever the number of layers that use it.
        self.attention_blocks = self._blocks(AttentionBlock, num_attention_groups, initializers)
        self.ffn_blocks = self._blocks(FeedForwardBlock, num_ffn_groups, initializers)
        self.pooler = dense(
            config.hidden_size, config.hidden_size, initializers, self.dtype_policy, tf.tanh
        )
        self.built = True

    def _blocks(self, block_class, num_groups: int, initializers: Initializers) -> list[list]:
        return [
            [
                block_class(
                    self.config, initializers, self.dtype_policy, f"group_{group}_inner_{inner}"
                )
                for inner in range(self.config.inner_group_num)
            ]
            for group in range(num_groups)
        ]

    def call(self, inputs, training=False, seed=None):
        """Encodes a batch.

        Args:
          inputs: dictionary of int tensors [B, L]: `input_ids`; optional `input_mask` (1 = real piece, default all)
            and `segment_ids` (default 0).
          training: whether dropout is on.
          seed: int32 [2] that dropout is a function of; drawn from TensorFlow's global generator if None.

        Returns:
          Dictionary of `sequence_output` [B, L, D], `pooled_output` [B, D] and `all_layers`, the output [B, L, D] of
          every block in order; float32.

        Raises:
          UserError: the sequence is longer than `max_position_embeddings`.
        """
        input_ids = inputs["input_ids"]
        length, limit = input_ids.shape[1], self.config.max_position_embeddings
        if length is not None and length > limit:
            raise UserError(
                f"input_ids has {length} pieces, but max_position_embeddings is {limit}: cut the input"
            )
        input_mask = inputs.get("input_mask")
        segment_ids = inputs.get("segment_ids")
        input_mask = tf.ones_like(input_ids) if input_mask is None else input_mask
        segment_ids = tf.zeros_like(input_ids) if segment_ids is None else segment_ids
        if training and seed is None:
            seed = new_seed()
        seed = seed if training else None

        hidden = self.embeddings(input_ids, segment_ids, seed=fold_seed(seed, 0))
        if self.projection is not None:
            hidden = self.projection(hidden)
        # Added before the softmax, -10000 takes a padding position out (original modeling.py:806-834).
        adder_B11M = (1.0 - tf.cast(input_mask, tf.float32))[:, None, None, :] * -10000.0
        all_layers = self._run_blocks(hidden, adder_B11M, seed, training)
        sequence_output = all_layers[-1]
        pooled_output = tf.cast(self.pooler(sequence_output[:, 0]), tf.float32)
        return {
            "sequence_output": sequence_output,
            "pooled_output": pooled_output,
            "all_layers": all_layers,
        }

    def _run_blocks(self, hidden, adder_B11M, seed, training) -> list[tf.Tensor]:
        blocks = self._blocks_in_order()
        num_uses = collections.Counter(itertools.chain.from_iterable(blocks))
        weights = {
            block: SharedWeights(block.shared_weights(), uses) for block, uses in num_uses.items()
        }
        outputs = []
        for attention, ffn in blocks:
            block_seed = fold_seed(seed, 1 + len(outputs))
            attention_weights, ffn_weights = weights[attention].use(), weights[ffn].use()

            # What gets a gradient is an argument, or recompute_grad would not see it.
            def both(hidden, *weights, attention=attention, ffn=ffn, seed=block_seed):
                attended = attention(
                    hidden, weights[:6], adder_B11M, seed=fold_seed(seed, 0), training=training
                )
                return ffn(attended, weights[6:], seed=fold_seed(seed, 1), training=training)

            run = tf.recompute_grad(both) if self._recompute else both
            hidden = run(hidden, *attention_weights, *ffn_weights)
            outputs.append(hidden)
        return outputs

    def _blocks_in_order(self) -> list[tuple[AttentionBlock, FeedForwardBlock]]:
        """Both blocks of every layer, inner groups one after the other."""
        config = self.config
        return [
            pair
            for layer in range(config.num_hidden_layers)
            for pair in zip(
                self.attention_blocks[config.attention_group_of_layer(layer)],
                self.ffn_blocks[config.ffn_group_of_layer(layer)],
                strict=True,
            )
        ]

    def named_variables(self) -> dict[str, tf.Variable]:
        """Every variable under its name in the released checkpoints.

        Where a strategy shares only one kind of sub-layer, the other kind stands under one `group_g` a layer: no
        released file has that.
        """
        variables = prefixed("bert/embeddings/", self.embeddings.named_variables())
        if self.projection is not None:
            name = "bert/encoder/embedding_hidden_mapping_in/"
            variables.update(prefixed(name, dense_variables(self.projection)))
        for blocks in (self.attention_blocks, self.ffn_blocks):
            for group, inner, block in _enumerate_nested(blocks):
                name = f"bert/encoder/transformer/group_{group}/inner_group_{inner}/"
                variables.update(prefixed(name, block.named_variables()))
        variables.update(prefixed("bert/pooler/dense/", dense_variables(self.pooler)))
        return variables


def _enumerate_nested(blocks: list[list]) -> Iterator[tuple[int, int, object]]:
    for group, inner_blocks in enumerate(blocks):
        for inner, block in enumerate(inner_blocks):
            yield group, inner, block


def dense_variables(layer: tf_keras.layers.Dense) -> dict[str, tf.Variable]:
    """A dense layer's variables under their released names."""
    return {"kernel": layer.kernel, "bias": layer.bias}


def prefixed(prefix: str, variables: dict[str, tf.Variable]) -> dict[str, tf.Variable]:
    """The same variables with a prefix to each name."""
    return {prefix + name: variable for name, variable in variables.items()}
