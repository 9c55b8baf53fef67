"""Backfill: reads the rows that were there before the log, and writes them as base chunks (docs/backfill.md)."""
