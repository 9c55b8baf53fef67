"""`tistream replay`: the changes of a tenant of RawKV, written into another TiKV cluster."""
