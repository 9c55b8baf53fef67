CREATE TABLE IF NOT EXISTS tenant_usage (
  cluster_id VARCHAR(63) $NAME NOT NULL,
  tenant_id VARCHAR(63) $NAME NOT NULL,
  hour_ms BIGINT NOT NULL,
  node_id VARCHAR(63) $NAME NOT NULL,
  instance VARCHAR(63) $NAME NOT NULL,
  bytes_in BIGINT NOT NULL,
  bytes_served BIGINT NOT NULL,
  rows_served BIGINT NOT NULL,
  requests_get BIGINT NOT NULL,
  requests_head BIGINT NOT NULL,
  requests_put BIGINT NOT NULL,
  requests_put_new BIGINT NOT NULL,
  requests_put_if BIGINT NOT NULL,
  requests_list BIGINT NOT NULL,
  requests_delete BIGINT NOT NULL,
  PRIMARY KEY (cluster_id, tenant_id, hour_ms, node_id, instance)
);
CREATE INDEX tenant_usage_by_hour ON tenant_usage (hour_ms);
CREATE TABLE IF NOT EXISTS tenant_stored (
  cluster_id VARCHAR(63) $NAME NOT NULL,
  tenant_id VARCHAR(63) $NAME NOT NULL,
  hour_ms BIGINT NOT NULL,
  task_id BIGINT NOT NULL,
  of_task BIGINT NOT NULL,
  manifest BIGINT NOT NULL,
  bytes BIGINT NOT NULL,
  PRIMARY KEY (cluster_id, tenant_id, hour_ms, task_id, of_task)
);
CREATE INDEX tenant_stored_by_hour ON tenant_stored (hour_ms);
CREATE TABLE IF NOT EXISTS quotas (
  cluster_id VARCHAR(63) $NAME NOT NULL,
  tenant_id VARCHAR(63) $NAME NOT NULL,
  requests_per_second BIGINT,
  pulls_at_once BIGINT,
  served_bytes_per_second BIGINT,
  notifications_per_second BIGINT,
  stored_bytes BIGINT,
  PRIMARY KEY (cluster_id, tenant_id)
);
