"""`python -m data_prep.<program>` runs albert_tf/data_prep/<program>.py in a checkout."""

from albert_tf.data_prep import __path__ as __path__
