"""Formats of BR, TiDB's backup tool: its full backups, and the log backups that TiKV writes for it (docs/backfill.md,
docs/log-backup.md)."""
