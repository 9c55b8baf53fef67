ALTER TABLE changefeeds ADD COLUMN revision BIGINT NOT NULL DEFAULT 0;
ALTER TABLE changefeeds ADD COLUMN begin_ts BIGINT;
ALTER TABLE changefeeds ADD COLUMN moved MEDIUMTEXT $NAME;
ALTER TABLE changefeeds ADD COLUMN applied MEDIUMTEXT $NAME;
CREATE TABLE IF NOT EXISTS feed_events (
  cluster_id VARCHAR(63) $NAME NOT NULL,
  tenant_id VARCHAR(63) $NAME NOT NULL,
  changefeed_id VARCHAR(128) $NAME NOT NULL,
  seq BIGINT NOT NULL,
  at_ms BIGINT NOT NULL,
  event MEDIUMTEXT $NAME NOT NULL,
  PRIMARY KEY (cluster_id, tenant_id, changefeed_id, seq)
);
