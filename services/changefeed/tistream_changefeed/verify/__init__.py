"""Compares what the topics of a feed hold with what the pool has."""
