"""The names that users import from `albert_tf`."""

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf import AlbertEncoder, UserError
from albert_tf.model import heads


def test_every_model_class_is_public():
    for name, model_class in heads.MODEL_CLASSES.items():
        assert getattr(albert_tf, name) is model_class


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("a text", "a model expects .*; got 'a text'"),
        ({"input_ids": [2, 5, 3]}, r"a model expects .*; got int32 \(3,\)"),
        ({"input_ids": [[2, 5, 3], [2, 3]]}, "a model expects .* all of one length; got"),
        ({"input_ids": np.ones([2, 18], np.int32)}, "18 tokens, but max_position_embeddings is 17"),
        ({"input_ids": [[2, 3]], "input_mask": [[1]]}, "input_mask must have the shape of input"),
    ],
)
@pytest.mark.parametrize("model_class", [AlbertEncoder, heads.AlbertForPreTraining])
def test_inputs_that_are_no_ids_are_rejected_in_one_line(model_class, inputs, message, tiny):
    with pytest.raises(UserError, match=message):
        model_class(tiny)(inputs)


def test_lists_arrays_and_tensors_of_ids_give_the_same_outputs(tiny):
    model = heads.AlbertForPreTraining(tiny, seed=3)
    ids = [[2, 7, 9, 3], [2, 5, 3, 0]]
    mask = [[1, 1, 1, 1], [1, 1, 1, 0]]
    outputs = [
        model({"input_ids": as_type(ids), "input_mask": as_type(mask)})["pooled_output"].numpy()
        for as_type in (list, np.array, tf.constant)
    ]
    assert np.abs(outputs[0]).max() > 0
    np.testing.assert_array_equal(outputs[0], outputs[1])
    np.testing.assert_array_equal(outputs[0], outputs[2])
