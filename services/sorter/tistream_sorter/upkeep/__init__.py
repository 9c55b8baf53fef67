"""Pure decisions about a task's work and objects: cutting ticks into shards, compaction, the version index, retention,
garbage collection."""
