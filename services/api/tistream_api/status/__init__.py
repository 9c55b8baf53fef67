"""Explains why a tenant is late, which nodes have its tasks and stores, and how far its backfills are."""
