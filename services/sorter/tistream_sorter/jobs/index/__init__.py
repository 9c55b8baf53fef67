"""Jobs of the version index: merges of runs, and base chunks of backfills that become base runs."""
