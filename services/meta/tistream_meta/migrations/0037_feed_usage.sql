CREATE TABLE IF NOT EXISTS feed_usage (
  cluster_id VARCHAR(63) $NAME NOT NULL,
  tenant_id VARCHAR(63) $NAME NOT NULL,
  changefeed_id VARCHAR(128) $NAME NOT NULL,
  created_ms BIGINT NOT NULL,
  shard BIGINT NOT NULL,
  sink VARCHAR(32) $NAME NOT NULL,
  hour_ms BIGINT NOT NULL,
  feed_rows BIGINT NOT NULL,
  feed_bytes BIGINT NOT NULL,
  rows_until BIGINT NOT NULL,
  bytes_until BIGINT NOT NULL,
  PRIMARY KEY (cluster_id, tenant_id, changefeed_id, created_ms, shard, sink, hour_ms)
);
CREATE INDEX feed_usage_by_hour ON feed_usage (hour_ms);
