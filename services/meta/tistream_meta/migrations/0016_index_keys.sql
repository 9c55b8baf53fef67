ALTER TABLE tenants ADD COLUMN index_keys BIGINT;
