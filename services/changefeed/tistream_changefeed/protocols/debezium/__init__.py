"""Debezium's JSON as TiCDC writes it (reference of changefeeds, 5). Pure."""
