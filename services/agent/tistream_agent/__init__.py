"""The agent: subscribes to the change stream of an unmodified TiKV, and writes what it receives as change files into
object storage (docs/agent.md)."""
