"""Formats of BR, and of the log backups that TiKV writes: the protobuf messages, and full backups (docs/log-backup.md,
docs/backfill.md)."""
