"""Bodies of the calls about a tenant's sources, backfills, restores, changefeeds, secrets and territories."""
