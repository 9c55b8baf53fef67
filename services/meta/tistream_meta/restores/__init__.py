"""Restores in the meta database. Ingest processes run them."""
