"""The token between services."""
