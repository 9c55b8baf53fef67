ALTER TABLE changefeeds ADD COLUMN shards BIGINT;
