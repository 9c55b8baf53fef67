CREATE TABLE IF NOT EXISTS territories (
  cluster_id VARCHAR(63) $NAME NOT NULL,
  tenant_id VARCHAR(63) $NAME NOT NULL,
  store_id BIGINT NOT NULL,
  range_start BLOB NOT NULL,
  range_end BLOB NOT NULL,
  upstream TEXT $NAME NOT NULL,
  epoch BIGINT NOT NULL,
  node_id VARCHAR(63) $NAME,
  instance VARCHAR(63) $NAME NOT NULL,
  created_ms BIGINT NOT NULL,
  PRIMARY KEY (cluster_id, tenant_id, store_id)
);
