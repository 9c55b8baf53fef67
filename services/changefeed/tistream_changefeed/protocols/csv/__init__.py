"""Encodes row events as lines of CSV, as TiCDC writes them. Pure."""
