"""The time that a run has trained; with --train_minutes, the schedule follows it instead of the steps."""

import tensorflow as tf


class Clock(tf.Module):
    """The seconds of all training steps of a run, in a variable that checkpoints contain, and their budget."""

    def __init__(self, minutes: float):
        super().__init__()
        self.budget = 60.0 * minutes
        one = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.seconds = tf.Variable(0.0, name="seconds", trainable=False, aggregation=one)

    def share(self) -> tf.Tensor:
        """The share of the budget that is used, float32."""
        return tf.minimum(self.seconds / self.budget, 1.0)

    def is_over(self) -> bool:
        """Whether nothing of the budget is left."""
        return float(self.seconds.numpy()) >= self.budget
