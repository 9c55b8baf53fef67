CREATE TABLE IF NOT EXISTS backfills (
  cluster_id VARCHAR(63) $NAME NOT NULL,
  tenant_id VARCHAR(63) $NAME NOT NULL,
  backfill_id VARCHAR(63) $NAME NOT NULL,
  source TEXT $NAME NOT NULL,
  asked MEDIUMTEXT $NAME NOT NULL,
  state VARCHAR(16) $NAME NOT NULL,
  reason TEXT,
  created_ms BIGINT NOT NULL,
  ended_ms BIGINT,
  PRIMARY KEY (cluster_id, tenant_id, backfill_id)
);
