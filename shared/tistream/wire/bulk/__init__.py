"""The bodies of calls about bulk work of a tenant: sources, backfills, restores."""
