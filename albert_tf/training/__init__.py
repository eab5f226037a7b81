"""Trains any task; knows no concrete one."""
