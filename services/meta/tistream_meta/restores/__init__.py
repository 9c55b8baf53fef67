"""Restores that ingest processes run, in the meta database."""
