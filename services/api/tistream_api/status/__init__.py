"""Explains why a tenant is late, which nodes have its tasks and stores, and what its backfills have done."""
