CREATE TABLE IF NOT EXISTS audit (
  seq BIGINT NOT NULL,
  at_ms BIGINT NOT NULL,
  action VARCHAR(64) $NAME NOT NULL,
  actor TEXT $NAME NOT NULL,
  address VARCHAR(64) $NAME,
  cause VARCHAR(64) $NAME,
  subject VARCHAR(160) $NAME NOT NULL,
  cluster_id VARCHAR(63) $NAME,
  tenant_id VARCHAR(63) $NAME,
  was MEDIUMTEXT $NAME,
  became MEDIUMTEXT $NAME,
  PRIMARY KEY (seq)
);
CREATE INDEX audit_by_tenant ON audit (cluster_id, tenant_id, seq);
CREATE INDEX audit_by_time ON audit (at_ms);
