"""Runs backfills: they read the rows that existed before TiStream's log of changes began, and write them as base chunks
(docs/backfill.md)."""
