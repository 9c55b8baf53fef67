"""Full backups of BR in an object store (docs/backfill.md)."""
