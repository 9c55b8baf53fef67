"""`tistream replay`: writes the changes of a RawKV tenant into another TiKV cluster."""
