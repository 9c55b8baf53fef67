"""Reads one log backup as a source: what its bucket contains, and the release that follows from it."""
