"""Formats of backfills: BR's full backup, base chunks and their plan (docs/backfill.md)."""
