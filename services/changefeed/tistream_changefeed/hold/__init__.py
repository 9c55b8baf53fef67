"""Runs the shards that this process holds. Each shard has a thread, which reads, encodes and writes."""
