"""Encodes row events as Avro records in Confluent's framing, with schemas as TiCDC writes them. Pure."""
