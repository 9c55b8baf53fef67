"""Formats of backfills: base chunks and their plan (docs/backfill.md)."""
