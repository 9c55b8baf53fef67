"""`tistream pull`: events to stdout or to a directory."""
