CREATE TABLE IF NOT EXISTS tokens (
  token_id VARCHAR(16) $NAME NOT NULL,
  hash VARCHAR(64) $NAME NOT NULL,
  label VARCHAR(128) $NAME NOT NULL,
  grants MEDIUMTEXT $NAME NOT NULL,
  created_ms BIGINT NOT NULL,
  expires_ms BIGINT,
  revoked_ms BIGINT,
  PRIMARY KEY (token_id)
);
