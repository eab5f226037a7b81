"""What stands on the encoder: masked LM and sentence order, and the model that pretrains with both.

Shape legend: `modeling.py`.
"""

import tensorflow as tf
import tf_keras

from albert_tf import modeling
from albert_tf.config import AlbertConfig


class MaskedLmHead(tf_keras.layers.Layer):
    """Scores of every vocabulary piece at the masked positions, against the tied word table.

    Source: original run_pretraining.py:294-337 (get_masked_lm_output).
    """

    def __init__(self, config: AlbertConfig, initializers: modeling.Initializers, dtype=None):
        super().__init__(dtype=dtype, name="masked_lm_head")
        self.transform = modeling.dense(
            config.hidden_size,
            config.embedding_size,
            initializers,
            self.dtype_policy,
            modeling.ACTIVATIONS[config.hidden_act],
        )
        self.layer_norm = modeling.LayerNorm(config.embedding_size, config.layer_norm_eps)
        self.output_bias = self.add_weight(
            "output_bias", [config.vocab_size], initializer="zeros", experimental_autocast=False
        )

    def call(self, sequence_output_BLD, word_embeddings_VE, positions_BP):
        """Hidden states [B, L, D], word table [V, E] and positions [B, P] -> logits [B, P, V] float32."""
        masked_BPD = tf.gather(sequence_output_BLD, positions_BP, batch_dims=1)
        transformed_BPE = self.layer_norm(self.transform(masked_BPD))
        logits_BPV = tf.einsum(
            "BPE,VE->BPV",
            tf.cast(transformed_BPE, self.compute_dtype),
            tf.cast(word_embeddings_VE, self.compute_dtype),
        )
        return tf.cast(logits_BPV, tf.float32) + self.output_bias

    def named_variables(self) -> dict[str, tf.Variable]:
        """The variables under their released names."""
        return {
            **modeling.prefixed("transform/dense/", modeling.dense_variables(self.transform)),
            **modeling.prefixed("transform/LayerNorm/", self.layer_norm.named_variables()),
            "output_bias": self.output_bias,
        }


class SentenceOrderHead(tf_keras.layers.Layer):
    """Two scores on the pooled output: 0 in order, 1 swapped; float32.

    Source: original run_pretraining.py:340-361 (get_sentence_order_output).
    """

    def __init__(self, config: AlbertConfig, initializers: modeling.Initializers):
        super().__init__(dtype="float32", name="sentence_order_head")
        self.output_weights = self.add_weight(
            "output_weights", [2, config.hidden_size], initializer=initializers.truncated_normal()
        )
        self.output_bias = self.add_weight("output_bias", [2], initializer="zeros")

    def call(self, pooled_output_BD):
        """[B, D] -> [B, 2]."""
        return tf.einsum("BD,CD->BC", pooled_output_BD, self.output_weights) + self.output_bias

    def named_variables(self) -> dict[str, tf.Variable]:
        """The variables under their released names."""
        return {"output_weights": self.output_weights, "output_bias": self.output_bias}


class AlbertForPreTraining(tf_keras.Model):
    """Encoder with the masked-LM and sentence-order heads.

    Args:
      config: the sizes.
      dtype: a tf_keras dtype policy; None takes the global one.
      recompute_activations: see `AlbertEncoder`.
      seed: of the start values.
    """

    def __init__(
        self,
        config: AlbertConfig,
        *,
        dtype=None,
        recompute_activations: bool = False,
        seed: int = 0,
    ):
        super().__init__(dtype=dtype, name="albert_for_pretraining")
        self.config = config
        self.encoder = modeling.AlbertEncoder(
            config,
            dtype=self.dtype_policy,
            recompute_activations=recompute_activations,
            seed=seed,
        )
        initializers = modeling.Initializers(config, seed + 1)
        self.masked_lm_head = MaskedLmHead(config, initializers, dtype=self.dtype_policy)
        self.sentence_order_head = SentenceOrderHead(config, initializers)
        self.built = True

    def call(self, inputs, training=False, seed=None):
        """What the encoder gives, with the logits of both heads.

        Args:
          inputs: see `AlbertEncoder.call`; with `masked_lm_positions` int [B, P] for masked-LM logits.
          training: whether dropout is on.
          seed: see `AlbertEncoder.call`.

        Returns:
          The encoder's dictionary, with `sentence_order_logits` [B, 2] and, if positions were given,
          `masked_lm_logits` [B, P, V]; float32.
        """
        outputs = dict(self.encoder(inputs, training=training, seed=seed))
        if "masked_lm_positions" in inputs:
            outputs["masked_lm_logits"] = self.masked_lm_head(
                outputs["sequence_output"],
                self.encoder.embeddings.word_embeddings,
                inputs["masked_lm_positions"],
            )
        outputs["sentence_order_logits"] = self.sentence_order_head(outputs["pooled_output"])
        return outputs

    def named_variables(self) -> dict[str, tf.Variable]:
        """Every variable under its name in the released checkpoints."""
        return {
            **self.encoder.named_variables(),
            **modeling.prefixed("cls/predictions/", self.masked_lm_head.named_variables()),
            **modeling.prefixed(
                "cls/seq_relationship/", self.sentence_order_head.named_variables()
            ),
        }
