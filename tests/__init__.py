"""Tests; the test of albert_tf/data/reading.py is tests/data/test_reading.py."""
