"""A third format: the tokens of one example as text. Pretrains with it where a test calls `main`."""

import sys

import numpy as np

from albert_tf.data.record_formats import FORMATS
from albert_tf.data.record_formats.base import RecordBatch, RecordFormat
from albert_tf.data.record_formats.full import parse_batch, pretraining_schema


class ToyFormat(RecordFormat):
    """Masked tokens, the tokens before masking in place of the rest, and where B begins."""

    help = "one example as masked and unmasked tokens"

    def features(self, sequences, masked, per_row, rule):
        padding = np.where(sequences.input_ids == 0, -1, sequences.input_ids)
        first_b = sequences.first_b[:, None]
        features = {"masked": masked.input_ids, "before": padding, "first_b": first_b}
        most = int(masked.counts.max(initial=0))
        return RecordBatch({**features, "label": sequences.labels}, {}, {"max_predictions": most})

    def schema(self, metadata):
        return pretraining_schema(metadata["max_seq_length"], metadata["counts"]["max_predictions"])

    def parser(self, metadata, schema, seed):
        import tensorflow as tf

        length, slots = schema["input_ids"][0], schema["masked_lm_ids"][0]
        stored = {name: (length, tf.int64) for name in ("masked", "before")}
        stored |= {name: (1, tf.int64) for name in ("first_b", "label")}

        def parse(_numbers, serialized):
            found = parse_batch(serialized, stored)
            is_token = found["before"] >= 0
            changed = tf.cast(is_token & (found["masked"] != found["before"]), tf.float32)
            weights, positions = tf.math.top_k(changed, slots)
            return {
                "input_ids": found["masked"],
                "input_mask": tf.cast(is_token, tf.int32),
                "segment_ids": tf.cast(is_token & (tf.range(length) >= found["first_b"]), tf.int32),
                "masked_lm_positions": positions,
                "masked_lm_ids": tf.gather(tf.maximum(found["before"], 0), positions, batch_dims=1),
                "masked_lm_weights": weights,
                "next_sentence_labels": found["label"],
            }

        return parse


def main(text: str, vocabulary: str, config: str, folder: str) -> None:
    """Makes records of a text in the toy format and trains on them for two steps."""
    FORMATS["toy"] = ToyFormat()
    from albert_tf.data_prep import create_pretraining_data
    from tests.helpers import pretrain_here

    settings = create_pretraining_data.PretrainingDataSettings(
        input_file=text,
        spm_model_file=vocabulary,
        output_dir=f"{folder}/records",
        record_format="toy",
        max_seq_length=32,
        max_predictions_per_seq=5,
        dupe_factor=1,
        num_workers=1,
    )
    create_pretraining_data.main(settings)
    pretrain_here(
        *(f"--input_file={folder}/records", f"--output_dir={folder}/run"),
        *(f"--albert_config_file={config}", "--train_batch_size=4", "--num_train_steps=2"),
        *("--num_warmup_steps=1", "--log_every_steps=1"),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
