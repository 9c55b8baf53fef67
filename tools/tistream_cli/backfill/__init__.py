"""`tistream backfill …`: rows from before the log."""
