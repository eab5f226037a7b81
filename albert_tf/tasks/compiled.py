"""A TensorFlow model as a function of arrays, as predictors call it."""

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from albert_tf.model.heads import ModelWithHead
from albert_tf.model.process import check_process
from albert_tf.tasks.predictor import Arrays, Compute


class Compiled(Compute):
    """A model's outputs for batches; one graph serves all batch sizes and lengths."""

    def __init__(self, model: ModelWithHead):
        self.model = model
        self.in_graph = tf.function(self._call)

    def __call__(self, features: Arrays) -> Arrays:
        check_process()
        specs = {name: tf.TensorSpec([None] * a.ndim, a.dtype) for name, a in features.items()}
        outputs = self.in_graph.get_concrete_function(specs)(features)
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    def values(self) -> Iterator[tuple[str, np.ndarray]]:
        """The variables, by their released names."""
        for name, variable in sorted(self.model.named_variables().items()):
            yield name, variable.numpy()

    def _call(self, features):
        outputs = dict(self.model(features, training=False))
        outputs.pop("all_layers", None)
        return outputs
