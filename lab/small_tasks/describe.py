"""Prints the sizes, vocabulary and case of a model as JSON, so that the calling process needs no TensorFlow.

python -m lab.small_tasks.describe MODEL
"""

import json
import sys

from albert_tf.core.errors import UserError
from albert_tf.formats import pretrained

if __name__ == "__main__":
    try:
        weights = pretrained.read_weights(sys.argv[1])
    except UserError as error:
        sys.exit(str(error))
    config = json.loads(weights.config.to_json_string())
    print(json.dumps({"config": config, "vocabulary": weights.vocabulary, **weights.cleaning}))
