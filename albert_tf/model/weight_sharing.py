"""Weights that many layers share: prepared once, their gradients added up as the backward pass comes to them.

TensorFlow keeps the gradient of every use of a variable until it has those of all uses, which for the 12 layers of
albert-xxlarge is 12 times 0.8 GB. Here every use passes the weights on to the next one, so that the backward pass has
one sum, and adds to it in place.
"""

from collections.abc import Sequence

import tensorflow as tf


class SharedWeights:
    """Weights of a group, for one use after another.

    Args:
      weights: pairs of a float32 tensor or variable and the float type that it is used in; each is cast once.
      num_uses: how often they will be used.
    """

    def __init__(self, weights: Sequence[tuple[tf.Tensor, tf.DType]], num_uses: int):
        self._values = [tf.convert_to_tensor(value) for value, _ in weights]
        self._cast = [
            tf.stop_gradient(tf.cast(value, dtype))
            for value, (_, dtype) in zip(self._values, weights, strict=True)
        ]
        self._uses_left = num_uses

    def use(self) -> list[tf.Tensor]:
        """The weights in the types that they are used in; the gradients of all uses are added up in float32."""
        self._uses_left -= 1
        assert self._uses_left >= 0, "more uses than were announced"
        number, is_last = len(self._values), not self._uses_left

        @tf.custom_gradient
        def function(*values):
            def gradient(*upstream):
                gradients = [tf.cast(one, tf.float32) for one in upstream[:number]]
                if is_last:
                    return gradients
                later = upstream[number:]
                return [total + one for total, one in zip(later, gradients, strict=True)]

            cast = [tf.identity(value) for value in self._cast]
            return (cast if is_last else [*cast, *map(tf.identity, values)]), gradient

        outputs = function(*self._values)
        self._values = outputs[number:]
        return outputs[:number]
