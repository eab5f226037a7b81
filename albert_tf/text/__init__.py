"""Text -> token ids; needs no TensorFlow."""
