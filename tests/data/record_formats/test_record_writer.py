"""The bytes of records: what TensorFlow writes, and reads."""

import numpy as np
import tensorflow as tf

from albert_tf.data.record_formats import record_writer


def test_a_record_is_what_tensorflow_writes_and_reads(tmp_path):
    rng = np.random.default_rng(0)
    features = {
        "small": rng.integers(0, 128, (50, 7), np.int32),
        "a_much_longer_name_of_a_feature": rng.integers(-(2**31), 2**31 - 1, (50, 300), np.int32),
        "weights": rng.standard_normal((50, 40), np.float32),
        "one": np.full((50, 1), 16384, np.int32),
    }
    path = tmp_path / "r.tfrecord"
    path.write_bytes(record_writer.encode_examples(features).tobytes())
    records = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
    assert len(records) == 50
    for row, record in enumerate(records):
        expected = tf.train.Example()
        for name, values in features.items():
            feature = expected.features.feature[name]
            if values.dtype == np.float32:
                feature.float_list.value.extend(values[row])
            else:
                feature.int64_list.value.extend(values[row])
        assert tf.train.Example.FromString(record) == expected
        assert len(record) == expected.ByteSize()
