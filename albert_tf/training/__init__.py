"""Trains any task through the Task interface; knows no concrete task."""
