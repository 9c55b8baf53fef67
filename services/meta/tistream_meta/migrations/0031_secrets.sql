CREATE TABLE IF NOT EXISTS secrets (
  cluster_id VARCHAR(63) $NAME NOT NULL,
  tenant_id VARCHAR(63) $NAME NOT NULL,
  name VARCHAR(63) $NAME NOT NULL,
  sealed MEDIUMTEXT $NAME NOT NULL,
  put_ms BIGINT NOT NULL,
  PRIMARY KEY (cluster_id, tenant_id, name)
);
