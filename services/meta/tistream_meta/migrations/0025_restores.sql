CREATE TABLE IF NOT EXISTS restores (
  cluster_id VARCHAR(63) $NAME NOT NULL,
  tenant_id VARCHAR(63) $NAME NOT NULL,
  restore_id VARCHAR(63) $NAME NOT NULL,
  state VARCHAR(16) $NAME NOT NULL,
  epoch BIGINT NOT NULL,
  node_id VARCHAR(63) $NAME,
  lease_until_ms BIGINT NOT NULL,
  created_ms BIGINT NOT NULL,
  wanted MEDIUMTEXT $NAME NOT NULL,
  tables MEDIUMTEXT $NAME NOT NULL,
  reason MEDIUMTEXT $NAME,
  PRIMARY KEY (cluster_id, tenant_id, restore_id)
);
