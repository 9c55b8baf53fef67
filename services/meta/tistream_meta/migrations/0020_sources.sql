CREATE TABLE IF NOT EXISTS sources (
  cluster_id VARCHAR(63) $NAME NOT NULL,
  tenant_id VARCHAR(63) $NAME NOT NULL,
  source_id VARCHAR(63) $NAME NOT NULL,
  kind VARCHAR(16) $NAME NOT NULL,
  url TEXT $NAME NOT NULL,
  snapshot_kind VARCHAR(16) $NAME NOT NULL,
  snapshot_url TEXT $NAME,
  upstream_id VARCHAR(20) $NAME NOT NULL,
  created_ms BIGINT NOT NULL,
  removed_ms BIGINT,
  PRIMARY KEY (cluster_id, tenant_id, source_id)
);
