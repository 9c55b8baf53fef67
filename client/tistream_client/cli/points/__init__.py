"""`tistream rows|history|txn|diff`: reads at a point in time."""
