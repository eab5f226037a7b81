"""A TensorFlow model as a function of arrays, as predictors call it."""

from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf

from albert_tf.model.early_exit import EarlyExit, outputs_with_patience
from albert_tf.model.heads import ModelWithHead


class Compiled:
    """A model's outputs for batches; one graph serves all batch sizes and lengths.

    Args:
      early_exit: when examples leave the model; None if they pass all layers.
    """

    def __init__(self, model: ModelWithHead, early_exit: EarlyExit | None = None):
        self.model = model
        self._early_exit = early_exit
        self.in_graph = tf.function(self._call)

    def __call__(self, features: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        specs = {
            name: tf.TensorSpec([None] * values.ndim, values.dtype)
            for name, values in features.items()
        }
        outputs = self.in_graph.get_concrete_function(specs)(features)
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    def values(self) -> Iterator[tuple[str, np.ndarray]]:
        """The variables, by their released names."""
        for name, variable in sorted(self.model.named_variables().items()):
            yield name, variable.numpy()

    def _call(self, features):
        if self._early_exit:
            return outputs_with_patience(self.model, features, self._early_exit)
        outputs = dict(self.model(features, training=False))
        outputs.pop("all_layers", None)
        return outputs
