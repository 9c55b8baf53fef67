"""The Kafka sink: a transactional producer for each shard, and its progress in a compacted topic."""
