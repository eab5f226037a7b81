"""Text processing as TensorFlow operations, for exported models."""
