"""Spark jobs of the version index: they merge its runs, and convert base chunks of backfills to base runs."""
