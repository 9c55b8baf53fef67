"""The agent: subscribes to the change stream of an unmodified TiKV, and writes push files (docs/formats.md)."""
