"""Events as bytes: NDJSON, Arrow, Parquet; and which names a reader is shown."""
