"""`tistream replay`: writes the changes of a tenant of RawKV into another TiKV cluster."""
