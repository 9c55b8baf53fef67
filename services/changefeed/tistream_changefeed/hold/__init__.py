"""Runs the shards that the meta server has assigned to this process. A shard that has something to do has a thread,
which reads, encodes and writes."""
