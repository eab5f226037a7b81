"""Settings, flags, files, errors, progress, worker processes; no text, no models, no TensorFlow."""
