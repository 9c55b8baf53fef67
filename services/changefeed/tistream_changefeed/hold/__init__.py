"""The shards that this process holds: each reads, encodes and writes in a thread of its own."""
