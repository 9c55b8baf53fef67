"""Avro records in Confluent's framing, with schemas as TiCDC writes them (reference of changefeeds, 6). Pure."""
