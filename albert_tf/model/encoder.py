"""The ALBERT encoder, from token ids to hidden states; read it from top to bottom.

Shape legend of the whole package:
  B batch, L length, M length of the positions attended to, E embedding width, D hidden width, N attention heads,
  H width of a head, J query, key and value joined (3 D), F feed-forward width, V vocabulary, C choices or classes,
  P masked positions, K candidates (starts, ends, tokens for a mask), S examples in a packed row;
  in a matrix product: X rows, I and O input and output width.

Every variable exists as soon as a layer is constructed, and `named_variables` gives it under its name in the
released checkpoints. Dropout is a function of a seed, so that a resumed run draws the same values as an uninterrupted
run.

Source: paper, section 3; original modeling.py. Factorized embeddings (section 3.1) are `Embeddings`, of width E, and
`projection`, from E to D. Cross-layer parameter sharing is `_blocks` and `blocks_in_order`, by the groups of
`AlbertConfig`. The sentence-order loss is in `heads.py` and `tasks/pretraining/task.py`.
"""

import functools
import itertools
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple, Self

import tensorflow as tf
import tf_keras

import albert_tf
from albert_tf.core.files import AnyPath
from albert_tf.model import accelerator_ops, cpu_ops, device, plain_ops
from albert_tf.model.activations import function_of
from albert_tf.model.config import AlbertConfig
from albert_tf.model.inputs import check_keras_objects, checked_inputs
from albert_tf.model.process import check_process
from albert_tf.model.weight_sharing import Weights, cast_weights_per_layer


class Embeddings(tf_keras.layers.Layer):
    """Sum of word, segment and position embeddings, LayerNorm, dropout; float32, all of width E."""

    # A table [V, E] and ids [B, L] -> [B, L, E]. An export may take the rows in another way.
    lookup = staticmethod(tf.gather)

    def __init__(self, config: AlbertConfig, initializers: "Initializers"):
        super().__init__(dtype="float32", name="embeddings")
        self.config = config

        def table(name: str, rows: int) -> tf.Variable:
            shape = [rows, config.embedding_size]
            return self.add_weight(name, shape, initializer=initializers.truncated_normal())

        self.word_embeddings = table("word_embeddings", config.vocab_size)
        self.token_type_embeddings = table("token_type_embeddings", config.type_vocab_size)
        self.position_embeddings = table("position_embeddings", config.max_position_embeddings)
        self.layer_norm = LayerNorm(config.embedding_size, config.layer_norm_eps)
        self.built = True

    def call(self, input_ids, segment_ids, position_ids=None, seed=None):
        """Ids [B, L] of tokens, segments and positions (by default from 0 on) -> [B, L, E]."""
        words_BLE = self.lookup(self.word_embeddings, input_ids)
        # A gather instead of a product with one-hot vectors: its gradient has a row for every position, and the norm
        # for gradient clipping counts each of these rows, as in the original on CPU and GPU.
        types_BLE = self.lookup(self.token_type_embeddings, segment_ids)
        length = input_ids.shape[1] or tf.shape(input_ids)[1]
        positions = self.position_embeddings[:length]
        if position_ids is not None:
            # Gathers from a part of the table, so that the gradient is a sum for each row, as it is without
            # `position_ids`.
            positions = tf.gather(positions, position_ids)
        normed_BLE = self.layer_norm(words_BLE + types_BLE + positions)
        return dropout(normed_BLE, self.config.hidden_dropout_prob, seed)

    def named_variables(self) -> dict[str, tf.Variable]:
        tables = ("word_embeddings", "token_type_embeddings", "position_embeddings")
        variables = {name: getattr(self, name) for name in tables}
        return {**variables, **prefixed({"LayerNorm/": self.layer_norm})}


class AttentionBlock(tf_keras.layers.Layer):
    """Self-attention with its output projection, dropout, residual connection and LayerNorm.

    It owns 4 (D^2 + D) + 2 D values, which the sharing strategies `all` and `attention` share.
    """

    kind = "attention"

    def __init__(self, config: AlbertConfig, initializers: "Initializers", dtype, name: str):
        super().__init__(dtype=dtype, name=name)
        self.config = config
        width = config.hidden_size
        self.query, self.key, self.value, self.output_dense = (
            Dense(width, width, initializers, self.dtype_policy) for _ in range(4)
        )
        self.layer_norm = LayerNorm(width, config.layer_norm_eps)
        self.built = True

    def weights_by_name(self) -> Weights:
        """The weights that `call` needs; query, key and value are one matrix product."""
        projections = (self.query, self.key, self.value)
        return {
            "input_kernel": tf.concat([layer.kernel for layer in projections], axis=-1),
            "input_bias": tf.concat([layer.bias for layer in projections], axis=-1),
            **_output_weights(self.output_dense, self.layer_norm),
        }

    def call(self, hidden_BLD, mask, weights: Weights, seed, ops: ModuleType):
        """Attends from every position to those that the mask allows.

        `weights` are those of `weights_by_name`, which `cast_weights_per_layer` has cast once per step; `ops` is the
        module that computes attention and dropout: `plain_ops`, `cpu_ops` or `accelerator_ops`.

        Returns:
          Hidden states [B, L, D] float32.
        """
        config = self.config
        projected_BLJ = linear(hidden_BLD, weights["input_kernel"])
        bias_J = weights["input_bias"]
        num_heads = config.num_attention_heads
        drop = dropout_function(config.attention_probs_dropout_prob, fold_seed(seed, 0))
        context_BLD = ops.self_attention(projected_BLJ, bias_J, num_heads, mask, drop)
        return ops.residual_norm(
            linear(context_BLD, weights["output_kernel"]),
            weights["output_bias"],
            hidden_BLD,
            weights["gamma"],
            weights["beta"],
            config.layer_norm_eps,
            drop=dropout_function(config.hidden_dropout_prob, fold_seed(seed, 1)),
        )

    def probabilities(self, hidden_BLD, mask) -> tf.Tensor:
        """How much each head attends from position L to position M, [B, N, L, M]; without dropout."""
        (weights,) = cast_weights_per_layer([self], plain=True)
        projected_BLJ = linear(tf.cast(hidden_BLD, self.compute_dtype), weights["input_kernel"])
        num_heads = self.config.num_attention_heads
        query, key, _ = plain_ops.split_heads(projected_BLJ, weights["input_bias"], num_heads)
        return plain_ops.attention_probabilities(query, key, mask)

    def named_variables(self) -> dict[str, tf.Variable]:
        layers = {
            "attention_1/self/query/": self.query,
            "attention_1/self/key/": self.key,
            "attention_1/self/value/": self.value,
            "attention_1/output/dense/": self.output_dense,
            "LayerNorm/": self.layer_norm,
        }
        return prefixed(layers)


class FeedForwardBlock(tf_keras.layers.Layer):
    """Two dense layers with an activation between them, dropout, residual connection and LayerNorm.

    It owns 2 D F + F + D + 2 D values, which the sharing strategies `all` and `ffn` share.
    """

    kind = "ffn"

    def __init__(self, config: AlbertConfig, initializers: "Initializers", dtype, name: str):
        super().__init__(dtype=dtype, name=name)
        self.config = config
        hidden = config.hidden_size
        inner = config.intermediate_size
        self.intermediate = Dense(hidden, inner, initializers, self.dtype_policy)
        self.output_dense = Dense(inner, hidden, initializers, self.dtype_policy)
        self.layer_norm = LayerNorm(hidden, config.layer_norm_eps)
        self.built = True

    def weights_by_name(self) -> Weights:
        """The weights that `call` needs."""
        return {
            "input_kernel": self.intermediate.kernel,
            "input_bias": self.intermediate.bias,
            **_output_weights(self.output_dense, self.layer_norm),
        }

    def call(self, hidden_BLD, weights: Weights, seed, ops: ModuleType):
        """Hidden states [B, L, D] -> [B, L, D] float32; for the arguments see `AttentionBlock.call`."""
        inner_BLF = ops.bias_activation(
            linear(hidden_BLD, weights["input_kernel"]),
            weights["input_bias"],
            function_of(self.config.hidden_act),
        )
        return ops.residual_norm(
            linear(inner_BLF, weights["output_kernel"]),
            weights["output_bias"],
            hidden_BLD,
            weights["gamma"],
            weights["beta"],
            self.config.layer_norm_eps,
            drop=dropout_function(self.config.hidden_dropout_prob, seed),
        )

    def named_variables(self) -> dict[str, tf.Variable]:
        layers = {
            "ffn_1/intermediate/dense/": self.intermediate,
            "ffn_1/intermediate/output/dense/": self.output_dense,
            "LayerNorm_1/": self.layer_norm,
        }
        return prefixed(layers)


class SavableModel(tf_keras.Model):
    """A model that Keras can save, clone and pickle, because its sizes and its precision determine it."""

    config: AlbertConfig

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        tf_keras.utils.register_keras_serializable("albert_tf")(cls)  # load_model finds it

    def __init__(self, *arguments, **options):
        check_process()
        super().__init__(*arguments, **options)

    @tf.autograph.experimental.do_not_convert
    def __call__(self, inputs, *args, **kwargs):
        """See `call`; inputs are checked before Keras sees them."""
        check_process()
        return super().__call__(checked_inputs(inputs, self.config), *args, **kwargs)

    def get_config(self):
        """The arguments of the constructor; the values of the variables are saved apart."""
        return {"config": self.config.to_dict(), "dtype": self.dtype_policy.name, "name": self.name}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """A model with new values."""
        sizes = AlbertConfig.from_dict(config["config"])
        return cls(sizes, dtype=config["dtype"], name=config["name"])

    @classmethod
    def from_pretrained(cls, path: AnyPath, **options: Any) -> Self:
        """The model of this class at a path, in any layout; arguments and errors are those of `load_pretrained`.

        Example:
          AlbertForSequenceClassification.from_pretrained("hf:albert/albert-base-v2", num_labels=3)
        """
        # Through the public name, because the package that reads models builds on this one.
        return albert_tf.load_pretrained(path, model_class=cls, **options)

    def save_pretrained(self, folder: AnyPath, format: str = "hf", tokenizer: Any = "") -> None:
        """Writes a folder that `load_pretrained` reads, with a tokenizer if one is given; see `save_pretrained`."""
        albert_tf.save_pretrained(self, folder, format, tokenizer)

    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: Any = None,
        metrics: Any = None,
        *arguments: Any,
        **options: Any,
    ) -> None:
        """See `tf_keras.Model.compile`; objects of Keras 3 are an error that says what to change."""
        check_keras_objects(optimizer=optimizer, loss=loss, metrics=metrics, **options)
        super().compile(optimizer, loss, metrics, *arguments, **options)

    def fit(self, *arguments: Any, **options: Any) -> Any:
        """See `tf_keras.Model.fit`; callbacks of Keras 3 are an error that says what to change."""
        check_keras_objects(callbacks=options.get("callbacks"))
        return super().fit(*arguments, **options)


class AlbertEncoder(SavableModel):
    """The encoder: embeddings, projection to the hidden width, blocks with shared parameters, pooler.

    Args:
      dtype: a tf_keras dtype policy (float32, mixed_bfloat16, mixed_float16); None takes the global policy.
      recompute_activations: whether each layer is computed again in the backward pass, to save memory.
      plain: whether training uses `plain_ops`, as inference always does. By default, training uses `cpu_ops`
        and accumulates the gradients of shared weights in place; results are the same, with less time and memory.
    """

    def __init__(
        self,
        config: AlbertConfig,
        *,
        dtype=None,
        recompute_activations: bool = False,
        plain: bool = False,
        seed: int = 0,
        name: str = "albert_encoder",
    ):
        super().__init__(dtype=dtype, name=name)
        self.config = config
        self._recompute = recompute_activations
        self._plain = plain
        initializers = Initializers(config, seed)
        self.embeddings = Embeddings(config, initializers)
        self.projection = None
        width = config.hidden_size
        dtype = self.dtype_policy
        if config.embedding_size != width:
            self.projection = Dense(
                config.embedding_size, width, initializers, dtype, name="projection"
            )
        # [group][inner group]; a group is one copy of the variables, used by any number of layers.
        attention_group = config.attention_group_of_layer
        ffn_group = config.ffn_group_of_layer
        self.attention_blocks = self._blocks(AttentionBlock, attention_group, initializers)
        self.ffn_blocks = self._blocks(FeedForwardBlock, ffn_group, initializers)
        self.pooler = Dense(width, width, initializers, dtype, tf.tanh, name="pooler")
        self.built = True

    def _blocks(self, block_class, group_of_layer: Callable, initializers) -> list[list]:
        def block(group: int, inner: int) -> tf_keras.layers.Layer:
            name = f"{block_class.kind}_{group}_{inner}"
            return block_class(self.config, initializers, self.dtype_policy, name)

        num_groups = 1 + max(map(group_of_layer, range(self.config.num_hidden_layers)))
        inner_groups = range(self.config.inner_group_num)
        return [[block(group, inner) for inner in inner_groups] for group in range(num_groups)]

    def call(
        self,
        inputs,
        training=False,
        seed=None,
        output_hidden_states: bool = False,
        output_attentions: bool = False,
    ):
        """Encodes a batch.

        Args:
          inputs: dictionary of int tensors, arrays or lists [B, L]: `input_ids`; optional `input_mask` (1 = real token,
            default all) and `segment_ids` (default 0). In packed rows, which contain several examples each,
            `example_numbers` [B, L] replaces the mask (from 1 on; 0 = padding), `position_ids` [B, L] begin at 0 in
            each example, and `first_positions` [B, S] are the positions of the first tokens of up to S examples.
          training: whether dropout is on.
          seed: int32 [2], which determines the dropout; drawn from TensorFlow's global generator if it is None.

        Returns:
          Dictionary of `sequence_output` [B, L, D], `pooled_output` [B, D] (packed: [B, S, D]) and `all_layers`, the
          outputs [B, L, D] of all pairs of attention and feed-forward blocks in order; float32. If requested, also
          `hidden_states`, the input of the first layer and then `all_layers`; and `attentions`, the probabilities
          [B, N, L, L] of each attention block before dropout, which are computed a second time for this.

        Raises:
          UserError: the inputs are not such a dictionary, or are longer than `max_position_embeddings`. Names of other
            libraries (`attention_mask`, `token_type_ids`) mean the same; other inputs, such as labels, are ignored.
        """
        seed = training_seed(training, seed)
        embedded = self.embedded(inputs, fold_seed(seed, 0))
        mask = _mask_of(inputs)
        hidden = embedded
        all_layers = []
        for index, block in enumerate(self.block_functions(plain=self._plain or not training)):
            hidden = block(hidden, mask, fold_seed(seed, 1 + index))
            all_layers.append(hidden)
        outputs = {
            "sequence_output": all_layers[-1],
            "pooled_output": self.pooled(first_vectors(all_layers[-1], inputs)),
            "all_layers": all_layers,
        }
        hidden_states = [embedded, *all_layers]
        if output_hidden_states:
            outputs["hidden_states"] = hidden_states
        if output_attentions:
            blocks, _ = self.blocks_in_order()
            outputs["attentions"] = [
                block.probabilities(hidden, mask)
                for block, hidden in zip(blocks, hidden_states, strict=False)
            ]
        return outputs

    def embedded(self, inputs, seed=None) -> tf.Tensor:
        """The input of the first layer, [B, L, D]."""
        input_ids = inputs["input_ids"]
        segment_ids = inputs.get("segment_ids")
        segment_ids = tf.zeros_like(input_ids) if segment_ids is None else segment_ids
        hidden = self.embeddings(input_ids, segment_ids, inputs.get("position_ids"), seed=seed)
        return hidden if self.projection is None else self.projection(hidden)

    def pooled(self, first_vectors: tf.Tensor) -> tf.Tensor:
        """The pooled output, [..., D] float32, of the vectors of first tokens."""
        return tf.cast(self.pooler(first_vectors), tf.float32)

    def block_functions(self, *, plain: bool) -> list[Callable]:
        """The functions of all pairs of attention and feed-forward, in order; if all is shared, one pair many times.

        They map hidden states, a mask and a seed to hidden states [B, L, D] float32.
        """
        on_cpu = device.target_device() == "CPU"
        ops = cpu_ops if on_cpu else accelerator_ops
        if plain:
            ops = plain_ops
        recomputed = tf.recompute_grad if on_cpu else accelerator_ops.recomputed
        attentions, ffns = self.blocks_in_order()
        attention_weights = cast_weights_per_layer(attentions, plain=plain)
        ffn_weights = cast_weights_per_layer(ffns, plain=plain)

        def apply(index: int, hidden, mask, seed=None):
            layer: Callable = functools.partial(
                _layer, attentions[index], ffns[index], mask, seed, ops
            )
            if self._recompute:
                layer = recomputed(layer)
            return layer(hidden, attention_weights[index], ffn_weights[index])

        return [functools.partial(apply, index) for index in range(len(attentions))]

    def blocks_in_order(self) -> tuple[list[AttentionBlock], list[FeedForwardBlock]]:
        """The blocks of every layer, with inner groups one after the other."""
        attentions = []
        ffns = []
        for layer in range(self.config.num_hidden_layers):
            attentions += self.attention_blocks[self.config.attention_group_of_layer(layer)]
            ffns += self.ffn_blocks[self.config.ffn_group_of_layer(layer)]
        return attentions, ffns

    def named_variables(self) -> dict[str, tf.Variable]:
        """Every variable under its name in the released checkpoints.

        If a strategy shares only one kind of block, the blocks of the other kind have a `group_g` for each layer, which
        no released file has.
        """
        layers = {"bert/embeddings/": self.embeddings}
        if self.projection is not None:
            layers["bert/encoder/embedding_hidden_mapping_in/"] = self.projection
        variables = prefixed(layers)
        for groups in (self.attention_blocks, self.ffn_blocks):
            for group, inner_blocks in enumerate(groups):
                for inner, block in enumerate(inner_blocks):
                    name = f"bert/encoder/transformer/group_{group}/inner_group_{inner}/"
                    variables.update(prefixed({name: block}))
        return {**variables, **prefixed({"bert/pooler/dense/": self.pooler})}


def _layer(attention, ffn, mask, seed, ops, hidden, attention_weights, ffn_weights):
    """One layer. Tensors that get a gradient come last, because `tf.recompute_grad` must see them as arguments."""
    attended = attention(hidden, mask, attention_weights, fold_seed(seed, 0), ops)
    return ffn(attended, ffn_weights, fold_seed(seed, 1), ops)


def first_vectors(hidden_BLD: tf.Tensor, inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """The vector of the first token of each example, [B, D] (packed: [B, S, D])."""
    first_positions_BS = inputs.get("first_positions")
    if first_positions_BS is None:
        return hidden_BLD[:, 0]
    return tf.gather(hidden_BLD, first_positions_BS, batch_dims=1)


def _mask_of(inputs: Mapping[str, tf.Tensor]) -> plain_ops.AttentionMask:
    """The mask by which the tokens of an example attend to each other only."""
    if "example_numbers" in inputs:
        most_examples = inputs["first_positions"].shape[1]
        return plain_ops.example_mask(inputs["example_numbers"], most_examples)
    input_mask = inputs.get("input_mask")
    is_token = tf.ones_like(inputs["input_ids"]) if input_mask is None else input_mask
    return plain_ops.padding_mask(is_token)


# --- Parts of the layers above ---


class Initializers:
    """Makes initial values from one seed: truncated normal of the configured range, with a stream for each variable."""

    def __init__(self, config: AlbertConfig, seed: int):
        self._range = config.initializer_range
        self._seeds = itertools.count(1000 * seed)

    def truncated_normal(self) -> tf_keras.initializers.Initializer:
        """The initializer of the next variable (original modeling.py:442-444)."""
        return tf_keras.initializers.TruncatedNormal(stddev=self._range, seed=next(self._seeds))


class Dense(tf_keras.layers.Dense):
    """A dense layer whose variables exist as soon as it is constructed."""

    def __init__(
        self,
        input_width: int,
        width: int,
        initializers: Initializers,
        dtype,
        activation=None,
        **settings,
    ):
        kernel = initializers.truncated_normal()
        super().__init__(width, activation, kernel_initializer=kernel, dtype=dtype, **settings)
        self.build([None, input_width])

    def call(self, inputs):
        """[..., I] -> [..., O]; the gradient of the bias is a sum in float32 (`plain_ops.bias_add`)."""
        outputs = linear(inputs, tf.convert_to_tensor(self.kernel))
        if self.use_bias:
            outputs = plain_ops.bias_add(outputs, tf.convert_to_tensor(self.bias))
        return self.activation(outputs)

    def named_variables(self) -> dict[str, tf.Variable]:
        if not self.use_bias:
            return {"kernel": self.kernel}
        return {"kernel": self.kernel, "bias": self.bias}


class LayerNorm(tf_keras.layers.Layer):
    """Normalizes the last axis, in float32 under every policy (original modeling.py:429-432)."""

    def __init__(self, width: int, epsilon: float):
        super().__init__(dtype="float32")
        self.epsilon = epsilon
        self.gamma = self.add_weight("gamma", [width], initializer="ones")
        self.beta = self.add_weight("beta", [width], initializer="zeros")
        self.built = True

    def call(self, tensor):
        """[..., width] of any float type -> [..., width] float32."""
        return plain_ops.layer_norm(tensor, self.gamma, self.beta, self.epsilon)

    def named_variables(self) -> dict[str, tf.Variable]:
        return {"beta": self.beta, "gamma": self.gamma}


def _output_weights(dense: Dense, layer_norm: LayerNorm) -> Weights:
    """Weights of the output projection and of LayerNorm, with which both blocks end."""
    return {
        "output_kernel": dense.kernel,
        "output_bias": dense.bias,
        "gamma": layer_norm.gamma,
        "beta": layer_norm.beta,
    }


def linear(tensor_BLI: tf.Tensor, kernel: tf.Tensor, *, is_transposed=False) -> tf.Tensor:
    """[B, L, I] times the kernel [I, O], or transposed [O, I] -> [B, L, O].

    It is one product of matrices, whose gradients TensorFlow sums in float32 on every processor; those of `tf.einsum`
    are sums in bfloat16 on processors without such instructions.
    """
    inner_width, width = reversed(kernel.shape) if is_transposed else kernel.shape
    rows_XI = tf.reshape(tensor_BLI, [-1, inner_width])
    product_XO = tf.matmul(rows_XI, kernel, transpose_b=is_transposed)
    return tf.reshape(product_XO, tf.concat([tf.shape(tensor_BLI)[:-1], [width]], axis=0))


def dropout(tensor: tf.Tensor, rate: float, seed: tf.Tensor | None) -> tf.Tensor:
    """Zeroes a share `rate` of the values and scales up the others; does nothing without a seed."""
    if seed is None or rate == 0.0:
        return tensor
    return tf.nn.experimental.stateless_dropout(tensor, rate, seed, rng_alg="philox")


class Dropout(NamedTuple):
    """`dropout` with a fixed rate and seed, as a function of the tensor."""

    rate: float
    seed: tf.Tensor

    def __call__(self, tensor: tf.Tensor) -> tf.Tensor:
        """The tensor with dropout."""
        return dropout(tensor, self.rate, self.seed)

    def of_part(self, number: tf.Tensor | int) -> "Dropout":
        """The dropout of one part of a tensor, whose number selects the seed."""
        return Dropout(self.rate, fold_seed(self.seed, number))


def dropout_function(rate: float, seed: tf.Tensor | None) -> Dropout | None:
    """`dropout` with this rate and seed as a function of the tensor; None if it would do nothing."""
    return None if seed is None or rate == 0.0 else Dropout(rate, seed)


def fold_seed(seed: tf.Tensor | None, site: int) -> tf.Tensor | None:
    """A different seed for each place with dropout, selected by the number of the place; None stays None."""
    return None if seed is None else tf.random.experimental.stateless_fold_in(seed, site)


def training_seed(training: bool, seed: tf.Tensor | None) -> tf.Tensor | None:
    """The given seed, int32 [2]; if it is None, one from TensorFlow's global generator; None outside training."""
    if not training:
        return None
    if seed is not None:
        return seed
    return tf.random.uniform([2], maxval=2**31 - 1, dtype=tf.int32)


def prefixed(layers: Mapping[str, tf_keras.layers.Layer]) -> dict[str, tf.Variable]:
    """The named variables of several layers; the prefix of its layer is added to each name."""
    return {
        prefix + name: variable
        for prefix, layer in layers.items()
        for name, variable in layer.named_variables().items()
    }
