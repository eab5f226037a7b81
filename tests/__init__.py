"""Tests; the test of albert_tf/data/records.py is tests/data/test_records.py."""
