"""The commands that operate a platform through its API, and `tistream inspect`."""
