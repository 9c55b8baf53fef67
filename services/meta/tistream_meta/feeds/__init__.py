"""Changefeeds in the meta database, and the workers that hold their shards."""
