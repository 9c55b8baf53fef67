"""Backfill by SQL: stale reads of a TiDB through the MySQL protocol, encoded to base chunks (docs/backfill.md)."""
