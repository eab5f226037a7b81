"""A run's checkpoints: files that several packages read."""

from albert_tf.core import files


def newest_checkpoint(folder: str) -> str:
    """The path of the newest complete checkpoint in a folder, without its suffixes; "" if there is none."""
    import tensorflow as tf

    state = tf.train.get_checkpoint_state(folder)
    paths = reversed(state.all_model_checkpoint_paths if state else ())
    return next((path for path in paths if files.exists(f"{path}.index")), "")
