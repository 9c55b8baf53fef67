"""Reads the metadata of BR's full backups from an object store (docs/backfill.md)."""
