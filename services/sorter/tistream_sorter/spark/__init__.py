"""Spark as the sorter uses it."""
