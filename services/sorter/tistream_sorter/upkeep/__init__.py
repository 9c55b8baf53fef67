"""What keeps a task's work and objects small: shards, compaction, retention, garbage collection. Pure."""
