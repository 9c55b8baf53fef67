"""What BR and TiKV write for BR: the protobuf messages, and full backups (docs/log-backup.md, docs/backfill.md)."""
