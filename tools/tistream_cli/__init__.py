"""The `tistream` command: it runs a platform, operates one, and pulls from one."""
