CREATE TABLE IF NOT EXISTS stores (
  cluster_id VARCHAR(63) $NAME NOT NULL,
  tenant_id VARCHAR(63) $NAME NOT NULL,
  store_id BIGINT NOT NULL,
  dispatcher_node VARCHAR(63) $NAME,
  discovered_ms BIGINT NOT NULL,
  PRIMARY KEY (cluster_id, tenant_id, store_id)
);
