"""`tistream pull`: writes events to stdout or to a directory."""
