CREATE TABLE IF NOT EXISTS clusters (
  cluster_id VARCHAR(63) $NAME NOT NULL,
  created_ms BIGINT NOT NULL,
  PRIMARY KEY (cluster_id)
);
CREATE TABLE IF NOT EXISTS tenants (
  cluster_id VARCHAR(63) $NAME NOT NULL,
  tenant_id VARCHAR(63) $NAME NOT NULL,
  snapshot_ts BIGINT,
  problem TEXT,
  created_ms BIGINT NOT NULL,
  PRIMARY KEY (cluster_id, tenant_id)
);
CREATE TABLE IF NOT EXISTS tasks (
  task_id BIGINT NOT NULL,
  cluster_id VARCHAR(63) $NAME NOT NULL,
  tenant_id VARCHAR(63) $NAME NOT NULL,
  range_start BLOB NOT NULL,
  range_end BLOB NOT NULL,
  sorter_node VARCHAR(63) $NAME,
  dispatcher_node VARCHAR(63) $NAME,
  task_epoch BIGINT NOT NULL,
  PRIMARY KEY (task_id)
);
CREATE TABLE IF NOT EXISTS nodes (
  node_id VARCHAR(63) $NAME NOT NULL,
  role VARCHAR(16) NOT NULL,
  url VARCHAR(255) NOT NULL,
  start_epoch BIGINT NOT NULL,
  last_heartbeat_ms BIGINT NOT NULL,
  PRIMARY KEY (node_id)
);
CREATE TABLE IF NOT EXISTS owner (
  id BIGINT NOT NULL,
  node_id VARCHAR(63) $NAME NOT NULL,
  owner_rev BIGINT NOT NULL,
  lease_until_ms BIGINT NOT NULL,
  PRIMARY KEY (id)
);
CREATE TABLE IF NOT EXISTS counters (
  name VARCHAR(32) $NAME NOT NULL,
  value BIGINT NOT NULL,
  PRIMARY KEY (name)
);
