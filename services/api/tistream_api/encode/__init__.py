"""Encodes events as NDJSON, Arrow or Parquet, and hides the names that a reader may not see."""
