"""`tistream backfill …`: reads the rows that tables had before TiStream's log of changes began."""
