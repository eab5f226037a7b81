"""Models made of encoder and head: pretraining, classification, tagging, choice, SQuAD, embeddings.

Shape legend: `encoder.py`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from albert_tf.model import head_names
from albert_tf.model.activations import function_of
from albert_tf.model.config import AlbertConfig
from albert_tf.model.encoder import (
    AlbertEncoder,
    Dense,
    Initializers,
    LayerNorm,
    SavableModel,
    dropout,
    fold_seed,
    linear,
    prefixed,
    training_seed,
)
from albert_tf.model.numbers import NUM_ENDS, NUM_STARTS
from albert_tf.model.pooling import POOLINGS, parts_of
from albert_tf.model.vector_modules import (
    DENSE,
    LAYER_NORM_EPSILON,
    NORMALIZE,
    VECTOR_ACTIVATIONS,
)


class MaskedLmHead(tf_keras.layers.Layer):
    """Scores of all tokens of the vocabulary at masked positions, by word embeddings (run_pretraining.py:294-337)."""

    def __init__(self, config: AlbertConfig, initializers: Initializers, dtype=None):
        super().__init__(dtype=dtype, name="masked_lm_head")
        self.transform = Dense(
            config.hidden_size, config.embedding_size, initializers, self.dtype_policy
        )
        self.hidden_act = config.hidden_act  # not in the dense layer: a SavedModel takes no partial
        self.layer_norm = LayerNorm(config.embedding_size, config.layer_norm_eps)
        self.output_bias = self.add_weight(
            "output_bias", [config.vocab_size], initializer="zeros", experimental_autocast=False
        )
        self.built = True

    def call(self, masked_BPD, word_embeddings_VE):
        """Hidden states of masked positions [B, P, D], word embeddings [V, E] -> logits [B, P, V] float32."""
        activated_BPE = function_of(self.hidden_act)(self.transform(masked_BPD))
        transformed_BPE = self.layer_norm(activated_BPE)
        logits_BPV = linear(
            tf.cast(transformed_BPE, self.compute_dtype),
            tf.cast(word_embeddings_VE, self.compute_dtype),
            is_transposed=True,
        )
        return tf.cast(logits_BPV, tf.float32) + self.output_bias

    def named_variables(self) -> dict[str, tf.Variable]:
        layers = {"transform/dense/": self.transform, "transform/LayerNorm/": self.layer_norm}
        return {**prefixed(layers), "output_bias": self.output_bias}


class ScoreHead(tf_keras.layers.Layer):
    """Scores of each output vector of the encoder; float32 under every policy.

    Source: original run_pretraining.py:340-361 (sentence order, no dropout), classifier_utils.py:779-830,
    race_utils.py and squad_utils.py (create_model, create_v1_model).
    """

    def __init__(self, width: int, outputs: int, rate: float, initializers: Initializers):
        super().__init__(dtype="float32", name="score_head")
        self._dropout_rate = rate
        self.output_weights = self.add_weight(
            "output_weights",
            [outputs, width],
            initializer=initializers.truncated_normal(),
        )
        self.output_bias = self.add_weight("output_bias", [outputs], initializer="zeros")
        self.built = True

    def call(self, vectors, seed=None):
        """[..., D] -> [..., C]; dropout is a function of the seed, and off without a seed."""
        dropped = dropout(vectors, self._dropout_rate, seed)
        return tf.einsum("...D,CD->...C", dropped, self.output_weights) + self.output_bias

    def named_variables(self) -> dict[str, tf.Variable]:
        return {"output_weights": self.output_weights, "output_bias": self.output_bias}


class ModelWithHead(SavableModel):
    """An encoder and a head as a `tf_keras.Model`; the base class of the models below, which have the same arguments.

    Every class has `from_pretrained(path, num_labels=None, ...)`, which is `load_pretrained` with this class as
    `model_class`, and `save_pretrained(folder, tokenizer=tokenizer)`.

    `dtype` is a tf_keras dtype policy; None takes the global policy.
    """

    hf_architecture = ""  # the class of the transformers library with this head, if there is one
    pipeline_tag = ""  # the name of its task on model hubs, if they have one
    head_prefix = ""  # of the released names of the head's variables
    uses_pooler = True  # whether the outputs depend on the pooler, so that training changes it
    # Whether it is a classifier of vectors, which other libraries do not have.
    reads_vectors = False

    def __init__(
        self,
        config: AlbertConfig,
        *,
        dtype=None,
        recompute_activations: bool = False,
        seed: int = 0,
        name: str | None = None,
    ):
        super().__init__(dtype=dtype, name=name)
        self.config = config
        self.encoder = AlbertEncoder(
            config, dtype=self.dtype_policy, recompute_activations=recompute_activations, seed=seed
        )
        self._build_head(Initializers(config, seed + 1))
        self._untrained = _Untrained({})
        self.built = True

    def _build_head(self, initializers: Initializers) -> None:
        """By default, a score for each label."""
        config = self.config
        rate = config.classifier_dropout_prob
        self.head = ScoreHead(config.hidden_size, len(config.labels), rate, initializers)

    def _head_layers(self) -> dict[str, tf_keras.layers.Layer]:
        """The layers of the head by the prefix of their variables' released names."""
        return {self.head_prefix: self.head}

    def named_variables(self) -> dict[str, tf.Variable]:
        """Every variable under its name in the released checkpoints."""
        return {**self.encoder.named_variables(), **prefixed(self._head_layers())}

    def mark_untrained(self, names: Iterable[str]) -> None:
        """Remembers that variables have no trained values now: released names, of a pooler or a head."""
        variables = self.named_variables()
        self._untrained = _Untrained({name: variables[name].numpy() for name in names})

    def untrained_variables(self) -> set[str]:
        """The released names of the marked variables that no training has changed since, with their layer."""
        variables = self.named_variables()
        initial = self._untrained.values
        changed = [name for name in initial if not np.array_equal(variables[name], initial[name])]
        # "cls/predictions/output_bias" -> "cls/predictions": what is trained, is trained as a whole.
        trained = tuple("/".join(name.split("/")[:2]) for name in changed)
        return {name for name in initial if not name.startswith(trained)}


class _Untrained:
    """Initial values of variables; an object, because Keras would make a part of the model of a dictionary."""

    def __init__(self, values: Mapping[str, np.ndarray]):
        self.values = values


class AlbertForPreTraining(ModelWithHead):
    """Encoder with the masked-LM and sentence-order heads."""

    hf_architecture = head_names.ARCHITECTURES[head_names.PRETRAINING]
    pipeline_tag = "fill-mask"

    def _build_head(self, initializers):
        self.masked_lm_head = MaskedLmHead(self.config, initializers, dtype=self.dtype_policy)
        self.sentence_order_head = ScoreHead(self.config.hidden_size, 2, 0.0, initializers)

    def call(self, inputs, training=False, seed=None):
        """Outputs of the encoder, and the logits of both heads.

        Args:
          inputs: see `AlbertEncoder.call`; optional `masked_lm_positions` int [B, P] for masked-LM logits.

        Returns:
          The encoder's dictionary and `sentence_order_logits` [B, 2] (0 in order, 1 swapped) and, if positions were
          given, `masked_lm_logits` [B, P, V]; float32.
        """
        outputs = dict(self.encoder(inputs, training=training, seed=seed))
        if "masked_lm_positions" in inputs:
            positions_BP = inputs["masked_lm_positions"]
            masked_BPD = tf.gather(outputs["sequence_output"], positions_BP, batch_dims=1)
            word_embeddings_VE = self.encoder.embeddings.word_embeddings
            outputs["masked_lm_logits"] = self.masked_lm_head(masked_BPD, word_embeddings_VE)
        outputs["sentence_order_logits"] = self.sentence_order_head(outputs["pooled_output"])
        return outputs

    def _head_layers(self):
        return {
            "cls/predictions/": self.masked_lm_head,
            "cls/seq_relationship/": self.sentence_order_head,
        }


class _VectorLayers:
    """The layers that make one vector of the hidden states of a text; `AlbertConfig.sentence_embedding` says how.

    A base class of models: checkpoints name variables by the attributes of a model.
    """

    config: AlbertConfig
    projection_prefix = head_names.EMBEDDING_PROJECTION
    modules_prefix = head_names.EMBEDDING_MODULES

    def _build_vector_layers(self, how: Mapping[str, Any], initializers: Initializers) -> None:
        width = self.config.hidden_size * len(parts_of(how["pooling"]))
        self.module_layers = {}  # by the number of the module; a normalization has no layer
        for number, module in enumerate(how["modules"]):
            if module["kind"] == DENSE:
                layer = Dense(width, module["size"], initializers, "float32")
                width = module["size"]
            elif module["kind"] == NORMALIZE:
                continue
            else:
                layer = LayerNorm(width, LAYER_NORM_EPSILON)
            self.module_layers[str(number)] = layer
        self.projection = None
        if how["projection_size"]:
            self.projection = Dense(width, how["projection_size"], initializers, "float32")

    def _vectors_of_states(self, how: Mapping[str, Any], hidden_BLD, mask_BL) -> tf.Tensor:
        """Hidden states and their mask, which may be None -> vectors, float32 [B, values]."""
        vectors_BD = _pooled_states(how["pooling"], hidden_BLD, mask_BL)
        for number, module in enumerate(how["modules"]):
            if module["kind"] == NORMALIZE:
                vectors_BD = unit_length(vectors_BD)
                continue
            vectors_BD = self.module_layers[str(number)](vectors_BD)
            if module["kind"] == DENSE:
                vectors_BD = VECTOR_ACTIVATIONS[module["activation"]].compute(tf, vectors_BD)
        if self.projection:
            activation = VECTOR_ACTIVATIONS[how["projection_activation"]]
            vectors_BD = activation.compute(tf, self.projection(vectors_BD))
        return unit_length(vectors_BD) if how["normalize"] else vectors_BD

    def _vector_layers(self) -> dict[str, tf_keras.layers.Layer]:
        """The layers by the prefix of their variables' released names."""
        layers = {
            f"{self.modules_prefix}{number}/": layer for number, layer in self.module_layers.items()
        }
        if self.projection:
            layers[self.projection_prefix] = self.projection
        return layers


def _pooled_states(pooling: str, hidden_BLD, mask_BL) -> tf.Tensor:
    """Hidden states and their mask, which may be None -> vectors of one pooling, or of several side by side."""
    hidden_BLD = tf.cast(hidden_BLD, tf.float32)
    if mask_BL is None:
        mask_BL = tf.ones(tf.shape(hidden_BLD)[:2])
    mask_BL1 = tf.cast(mask_BL, tf.float32)[:, :, None]
    pooled = [POOLINGS[name].pool(tf, hidden_BLD, mask_BL1) for name in parts_of(pooling)]
    return tf.concat(pooled, axis=-1) if len(pooled) > 1 else pooled[0]


class AlbertForSequenceClassification(_VectorLayers, ModelWithHead):
    """Encoder with a score for each label, of the pooled output; one is a regression (classifier_utils.py:779).

    The scores of a model with another `AlbertConfig.classifier_pooling` are those of the vector of the text.
    """

    hf_architecture = head_names.ARCHITECTURES[head_names.SEQUENCE_CLASSIFICATION]
    pipeline_tag = "text-classification"

    def _build_head(self, initializers):
        config = self.config
        name = head_names.SEQUENCE_CLASSIFICATION
        self.hf_architecture = head_names.architecture_of(name, config)
        self.uses_pooler = head_names.uses_pooler(name, config)
        self.reads_vectors = head_names.reads_vectors(name, config)
        if config.classifier_vector is not None:
            self._build_vector_layers(config.classifier_vector, initializers)
        rate = config.classifier_dropout_prob
        self.head = ScoreHead(config.classifier_width, len(config.labels), rate, initializers)

    def call(self, inputs, training=False, seed=None):
        """`logits` [B, C] float32; arguments: see `AlbertForPreTraining.call`."""
        seed = training_seed(training, seed)
        vectors_BD = self.vectors(inputs, training, seed)
        return {"logits": self.head(vectors_BD, seed=fold_seed(seed, _HEAD_SITE))}

    def vectors(self, inputs, training=False, seed=None) -> tf.Tensor:
        """What the head reads of each text or pair, float32 [B, D]; arguments: see `AlbertForPreTraining.call`."""
        how = self.config.classifier_vector
        if how is None:
            return _pooled_outputs(self.encoder, inputs, training, seed)
        hidden_BLD = self.encoder(inputs, training=training, seed=seed)["sequence_output"]
        mask_BL = inputs.get("input_mask")
        if "example_places" in inputs:
            hidden_BLD, mask_BL = _unpacked(hidden_BLD, inputs)
        return self._vectors_of_states(how, hidden_BLD, mask_BL)

    def _head_layers(self):
        layers = {self.head_prefix: self.head}
        if self.config.classifier_vector is not None:
            layers |= self._vector_layers()
        return layers


class AlbertForTokenClassification(ModelWithHead):
    """Encoder with one score for each label at each position (tagging).

    Source: BERT paper, section 5.3; `AlbertForTokenClassification` of transformers. The original has no such task.
    """

    hf_architecture = head_names.ARCHITECTURES[head_names.TOKEN_CLASSIFICATION]
    pipeline_tag = "token-classification"
    uses_pooler = head_names.USES_POOLER[head_names.TOKEN_CLASSIFICATION]

    def call(self, inputs, training=False, seed=None):
        """`logits` [B, L, C] float32; arguments: see `AlbertEncoder.call`."""
        seed = training_seed(training, seed)
        sequence_BLD = self.encoder(inputs, training=training, seed=seed)["sequence_output"]
        return {"logits": self.head(sequence_BLD, seed=fold_seed(seed, _HEAD_SITE))}


class AlbertForMultipleChoice(ModelWithHead):
    """Encoder with one score for each choice, a separate sequence (original race_utils.py, create_model)."""

    hf_architecture = head_names.ARCHITECTURES[head_names.MULTIPLE_CHOICE]
    pipeline_tag = "multiple-choice"

    def _build_head(self, initializers):
        config = self.config
        self.head = ScoreHead(config.hidden_size, 1, config.classifier_dropout_prob, initializers)

    def call(self, inputs, training=False, seed=None):
        """`logits` [B, C] float32; arguments: see `AlbertForPreTraining.call`, but all inputs are [B, C, L]."""
        seed = training_seed(training, seed)
        pooled_BCD = _pooled_outputs(self.encoder, inputs, training, seed)
        logits_BC1 = self.head(pooled_BCD, seed=fold_seed(seed, _HEAD_SITE))
        return {"logits": logits_BC1[:, :, 0]}


class AlbertForSpan(ModelWithHead):
    """Encoder with a start and an end score at each position (SQuAD 1.1; original squad_utils.py, create_v1_model)."""

    hf_architecture = head_names.ARCHITECTURES[head_names.SPAN]
    pipeline_tag = "question-answering"
    head_prefix = "cls/squad/"
    uses_pooler = head_names.USES_POOLER[head_names.SPAN]

    def _build_head(self, initializers):
        self.head = ScoreHead(self.config.hidden_size, 2, 0.0, initializers)

    def call(self, inputs, training=False, seed=None):
        """`start_logits` and `end_logits` [B, L] float32; arguments: see `AlbertEncoder.call`."""
        sequence_BLD = self.encoder(inputs, training=training, seed=seed)["sequence_output"]
        start_BL, end_BL = tf.unstack(self.head(sequence_BLD), axis=-1)
        return {"start_logits": start_BL, "end_logits": end_BL}


class AlbertForSpanOrNone(ModelWithHead):
    """Encoder with scores of starts, of ends given a start, and of having no answer (SQuAD 2.0).

    Source: original squad_utils.py:1428-1575 (create_v2_model), which follows XLNet.
    """

    uses_pooler = head_names.USES_POOLER[head_names.SPAN_OR_NONE]
    num_starts = NUM_STARTS  # K
    num_ends = NUM_ENDS  # K

    def _build_head(self, initializers):
        width = self.config.hidden_size
        self.start = Dense(width, 1, initializers, "float32")
        self.end_hidden = Dense(2 * width, width, initializers, self.dtype_policy)
        self.end_norm = LayerNorm(width, self.config.layer_norm_eps)
        self.end = Dense(width, 1, initializers, "float32")
        self.answer_hidden = Dense(2 * width, width, initializers, "float32", tf.tanh)
        self.answer = Dense(width, 1, initializers, "float32", use_bias=False)

    def call(self, inputs, training=False, seed=None):
        """Scores of starts, of ends, and of having no answer.

        Args:
          inputs: see `AlbertEncoder.call`; also `p_mask` int [B, L], 1 = no answer can start or end here; optional
            `start_positions` int [B, 1], the known starts for the scores of ends.
          training: whether dropout is on; the best candidates are then left out.

        Returns:
          `start_log_probs` [B, L] and `cls_logits` [B], larger = no answer. With `start_positions`: `end_log_probs` [B,
          L]. Outside training: `start_top_log_probs` and `start_top_index` [B, K] of the best K starts, and
          `end_top_log_probs` and `end_top_index` [B, K * K] of the best K ends for each of them. Log probabilities are
          float32.
        """
        seed = training_seed(training, seed)
        hidden_BLD = self.encoder(inputs, training=training, seed=seed)["sequence_output"]
        mask_BL = tf.cast(inputs["p_mask"], tf.float32)
        start_BL = _masked(self.start(hidden_BLD)[:, :, 0], mask_BL)
        outputs = {
            "start_log_probs": tf.nn.log_softmax(start_BL),
            "cls_logits": self._answer_score(hidden_BLD, tf.nn.softmax(start_BL), seed),
        }
        if "start_positions" in inputs:
            ends_B1L = self._end_log_probs(hidden_BLD, inputs["start_positions"], mask_BL)
            outputs["end_log_probs"] = ends_B1L[:, 0]
        if not training:
            outputs.update(self._candidates(hidden_BLD, outputs["start_log_probs"], mask_BL))
        return outputs

    def _end_log_probs(self, hidden_BLD, starts_BK, mask_BL):
        """Log probabilities of all ends for each of some given starts, [B, K, L]."""
        # 2 texts of 8 tokens, 5 starts: their states [2, 8, 32] and [2, 5, 32].
        width = self.config.hidden_size
        dtype = self.end_hidden.compute_dtype
        hidden_BLD = tf.cast(hidden_BLD, dtype)
        starts_BKD = tf.gather(hidden_BLD, starts_BK, batch_dims=1)

        # The product of [h; h_start] with the kernel [64, 32] is the sum of those of h and h_start with its halves.
        kernel = tf.cast(self.end_hidden.kernel, dtype)
        of_position_BLD = tf.cast(linear(hidden_BLD, kernel[:width]), tf.float32)
        of_start_BKD = tf.cast(linear(starts_BKD, kernel[width:]), tf.float32)

        # [2, 5, 8, 32], in float32, because the gradients of start and bias are sums over all positions.
        summed_BKLD = of_position_BLD[:, None] + of_start_BKD[:, :, None]
        bias_D = tf.cast(self.end_hidden.bias, tf.float32)
        both_BKLD = self.end_norm(tf.tanh(summed_BKLD + bias_D))

        # [2, 5, 8, 32] -> [2, 5, 8]
        return tf.nn.log_softmax(_masked(self.end(both_BKLD)[..., 0], mask_BL[:, None]))

    def _answer_score(self, hidden_BLD, start_probs_BL, seed):
        """The logit of having no answer, [B], from the state of the expected start and that of [CLS]."""
        start_BD = tf.einsum("BLD,BL->BD", hidden_BLD, start_probs_BL)
        joined = self.answer_hidden(tf.concat([start_BD, hidden_BLD[:, 0]], axis=-1))
        rate = self.config.classifier_dropout_prob
        return self.answer(dropout(joined, rate, fold_seed(seed, _HEAD_SITE)))[:, 0]

    def _candidates(self, hidden_BLD, start_log_probs_BL, mask_BL):
        """The best starts, [B, K], and the best ends of each of them, [B, K * K]; see `call`."""
        starts = tf.nn.top_k(start_log_probs_BL, self.num_starts)
        ends = tf.nn.top_k(self._end_log_probs(hidden_BLD, starts.indices, mask_BL), self.num_ends)
        flat = [-1, self.num_starts * self.num_ends]
        return {
            "start_top_log_probs": starts.values,
            "start_top_index": starts.indices,
            "end_top_log_probs": tf.reshape(ends.values, flat),
            "end_top_index": tf.reshape(ends.indices, flat),
        }

    def _head_layers(self):
        return {
            "start_logits/dense/": self.start,
            "end_logits/dense_0/": self.end_hidden,
            "end_logits/LayerNorm/": self.end_norm,
            "end_logits/dense_1/": self.end,
            "answer_class/dense_0/": self.answer_hidden,
            "answer_class/dense_1/": self.answer,
        }


class AlbertForEmbedding(_VectorLayers, ModelWithHead):
    """Encoder whose last hidden states become one vector for each text; `AlbertConfig.sentence_embedding` says how.

    They are pooled (`pooling.py`), pass the modules of a model of others (`vector_modules.py`), are projected to
    `projection_size` values unless it is 0, and divided by their length if `normalize` is true.

    Attributes:
      cuts_padding: whether each column of texts [B, C, L] is cut to its own longest text, which XLA cannot compile.

    Source: Sentence-BERT (arXiv 1908.10084), section 3.
    """

    pipeline_tag = "sentence-similarity"
    uses_pooler = head_names.USES_POOLER[head_names.EMBEDDING]
    cuts_padding = False

    def _build_head(self, initializers):
        self._build_vector_layers(self.config.sentence_embedding, initializers)

    def call(self, inputs, training=False, seed=None):
        """`embedding` float32 [B, D], or [B, C, D] for several texts [B, C, L]; D is the projection's width, if any."""
        seed = training_seed(training, seed)
        if inputs["input_ids"].shape.rank == 2:
            return {"embedding": self._vectors(inputs, training, seed)}
        vectors = [
            self._vectors(self._column(inputs, column), training, fold_seed(seed, column))
            for column in range(inputs["input_ids"].shape[1])
        ]
        return {"embedding": tf.stack(vectors, axis=1)}

    def _column(self, inputs, column: int) -> dict[str, tf.Tensor]:
        """One of the texts of each example, [B, L]: questions are shorter than the texts that answer them."""
        names = ("input_ids", "input_mask", "segment_ids")
        texts = {name: inputs[name][:, column] for name in names if name in inputs}
        if self.cuts_padding and "input_mask" in texts:
            longest = tf.reduce_max(tf.reduce_sum(texts["input_mask"], axis=1))
            # Rounded up: 33 -> 64
            length = -(-longest // _LENGTHS_ARE_MULTIPLES_OF) * _LENGTHS_ARE_MULTIPLES_OF
            texts = {name: tensor[:, :length] for name, tensor in texts.items()}
        return texts

    def _vectors(self, inputs, training: bool, seed):
        outputs = self.encoder(inputs, training=training, seed=seed)
        how = self.config.sentence_embedding
        return self._vectors_of_states(how, outputs["sequence_output"], inputs.get("input_mask"))

    def _head_layers(self):
        return self._vector_layers()


def unit_length(vectors):
    """Vectors [..., D] divided by their lengths; a vector of zeros stays one, where 0 / 0 would be NaN."""
    return tf.math.l2_normalize(vectors, axis=-1, epsilon=1e-24)


# In the encoder, dropout sites are 0 (embeddings) and one for each pair of attention and feed-forward.
_HEAD_SITE = 1_000_000
_LENGTHS_ARE_MULTIPLES_OF = 32  # so that a CPU compiles its kernels for few shapes


def _pooled_outputs(encoder: AlbertEncoder, inputs, training: bool, seed) -> tf.Tensor:
    """The pooled output of every example: [B, D] for inputs [B, L], [B, C, D] for inputs [B, C, L].

    In packed rows with S examples, example i is at `example_places`[i], row * S + its place in the row.
    """
    ids = inputs["input_ids"]
    places_B = inputs.get("example_places")
    if places_B is not None:
        pooled_BSD = encoder(inputs, training=training, seed=seed)["pooled_output"]
        return tf.gather(tf.reshape(pooled_BSD, [-1, pooled_BSD.shape[-1]]), places_B)
    # Static sizes where they are known, so that the output has them, too.
    shape = [tf.shape(ids)[axis] if size is None else size for axis, size in enumerate(ids.shape)]
    names = ("input_ids", "input_mask", "segment_ids")
    # [B, C, L] -> [B * C, L]
    flat = {name: tf.reshape(inputs[name], [-1, shape[-1]]) for name in names if name in inputs}
    pooled = encoder(flat, training=training, seed=seed)["pooled_output"]
    # [B * C, D] -> [B, C, D]
    return tf.reshape(pooled, [*shape[:-1], pooled.shape[-1]])


def _unpacked(hidden_RLD, inputs) -> tuple[tf.Tensor, tf.Tensor]:
    """The hidden states of packed rows in one row for each example, [B, L, D], and the mask of these, int32 [B, L].

    For the inputs of packed rows see `AlbertEncoder.call` and `_pooled_outputs`.
    """
    numbers_RL = inputs["example_numbers"]
    firsts_RS = inputs["first_positions"]
    places_B = inputs["example_places"]
    length = tf.shape(numbers_RL)[1]
    most = tf.shape(firsts_RS)[1]
    # Places 0, 1, 4 of rows with up to S = 4 examples -> rows 0, 0, 1 and the numbers 1, 2, 1 there.
    rows_B1 = (places_B // most)[:, None]
    numbers_B1 = (places_B % most + 1)[:, None]
    firsts_B1 = tf.gather(tf.reshape(firsts_RS, [-1]), places_B)[:, None]

    # [B, L]: the positions from the first token of the example on; those after the end of its row are no tokens.
    positions_BL = firsts_B1 + tf.range(length)[None]
    is_in_row_BL = positions_BL < length
    indices_BL = rows_B1 * length + tf.minimum(positions_BL, length - 1)

    # [R, L, D] -> [R * L, D] -> [B, L, D]
    hidden_BLD = tf.gather(tf.reshape(hidden_RLD, [-1, hidden_RLD.shape[-1]]), indices_BL)
    is_own_BL = tf.gather(tf.reshape(numbers_RL, [-1]), indices_BL) == numbers_B1
    return hidden_BLD, tf.cast(is_in_row_BL & is_own_BL, tf.int32)


def _masked(logits, mask):
    """The logits, with -1e30 where the mask is 1 (original squad_utils.py:1455)."""
    return logits * (1.0 - mask) - 1e30 * mask


MODEL_CLASSES = {cls.__name__: cls for cls in ModelWithHead.__subclasses__()}  # of this file
