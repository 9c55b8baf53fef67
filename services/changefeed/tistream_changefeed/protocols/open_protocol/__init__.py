"""TiCDC's open protocol: rows and other events as JSON, framed in batches."""
