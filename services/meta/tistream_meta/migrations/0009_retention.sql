ALTER TABLE tenants ADD COLUMN retention_ms BIGINT;
