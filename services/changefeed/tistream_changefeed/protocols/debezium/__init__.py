"""Encodes events as Debezium's JSON, as TiCDC writes it. Pure."""
