"""Backfills in the meta database, and the rules by which they are started."""
