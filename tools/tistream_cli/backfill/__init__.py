"""`tistream backfill …`: brings in the rows that tables had before the log began."""
