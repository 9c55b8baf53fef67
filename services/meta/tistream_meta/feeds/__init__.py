"""Changefeeds in the meta database, their shards, and the secrets that they use."""
