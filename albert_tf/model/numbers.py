"""Numbers of the original that every engine of a model needs; without TensorFlow."""

NOT_ATTENDED = -10000.0  # added to scores before the softmax (original modeling.py:806-834)

# Candidates for the start and, for each, for the end of an answer (original run_squad_v2.py, start_n_top, end_n_top).
NUM_STARTS = 5
NUM_ENDS = 5
