"""`tistream pull`: writes the events of a tenant to stdout or into a directory."""
