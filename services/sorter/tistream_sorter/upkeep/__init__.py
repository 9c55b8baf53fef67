"""Decisions about a task's work and objects: shards, compaction, retention, garbage collection. Pure."""
