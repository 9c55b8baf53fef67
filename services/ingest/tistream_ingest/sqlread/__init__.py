"""Backfill by SQL: reads rows of a TiDB with stale reads through the MySQL protocol, and encodes them as base chunks
(docs/backfill.md)."""
