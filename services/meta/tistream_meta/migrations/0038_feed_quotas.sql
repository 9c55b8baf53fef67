ALTER TABLE quotas ADD COLUMN changefeeds BIGINT;
ALTER TABLE quotas ADD COLUMN changefeed_shards BIGINT;
ALTER TABLE quotas ADD COLUMN feed_rows_per_second BIGINT;
ALTER TABLE quotas ADD COLUMN feed_bytes_per_second BIGINT;
ALTER TABLE changefeeds ADD COLUMN skipped MEDIUMTEXT $NAME;
