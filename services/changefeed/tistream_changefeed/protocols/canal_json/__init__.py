"""Encodes events as Canal-JSON, as TiCDC writes it: one message for each row, with or without TiDB's extension."""
