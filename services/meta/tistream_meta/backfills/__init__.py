"""Backfills in the meta database."""
