"""Uses finished models: predictors, and exports whose TensorFlow graphs take strings."""
