CREATE TABLE IF NOT EXISTS kept_feeds (
  cluster_id VARCHAR(63) $NAME NOT NULL,
  tenant_id VARCHAR(63) $NAME NOT NULL,
  changefeed_id VARCHAR(128) $NAME NOT NULL,
  removed_ms BIGINT NOT NULL,
  kept MEDIUMTEXT $NAME NOT NULL,
  PRIMARY KEY (cluster_id, tenant_id, changefeed_id)
);
