CREATE TABLE IF NOT EXISTS changefeeds (
  cluster_id VARCHAR(63) $NAME NOT NULL,
  tenant_id VARCHAR(63) $NAME NOT NULL,
  changefeed_id VARCHAR(128) $NAME NOT NULL,
  state VARCHAR(16) $NAME NOT NULL,
  sink_uri TEXT $NAME NOT NULL,
  config MEDIUMTEXT $NAME NOT NULL,
  start_ts BIGINT NOT NULL,
  end_ts BIGINT,
  created_ms BIGINT NOT NULL,
  error MEDIUMTEXT $NAME,
  PRIMARY KEY (cluster_id, tenant_id, changefeed_id)
);
CREATE TABLE IF NOT EXISTS feed_shards (
  cluster_id VARCHAR(63) $NAME NOT NULL,
  tenant_id VARCHAR(63) $NAME NOT NULL,
  changefeed_id VARCHAR(128) $NAME NOT NULL,
  shard BIGINT NOT NULL,
  epoch BIGINT NOT NULL,
  node_id VARCHAR(63) $NAME,
  instance VARCHAR(63) $NAME NOT NULL,
  lease_until_ms BIGINT NOT NULL,
  checkpoint_ts BIGINT NOT NULL,
  report MEDIUMTEXT $NAME,
  PRIMARY KEY (cluster_id, tenant_id, changefeed_id, shard)
);
