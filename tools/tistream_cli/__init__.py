"""The `tistream` command."""
