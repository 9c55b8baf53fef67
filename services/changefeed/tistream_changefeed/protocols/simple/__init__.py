"""Encodes events in TiCDC's simple protocol, in its JSON form. Pure."""
