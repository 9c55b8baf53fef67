"""Writes a feed into object storage, with the layout of TiCDC's storage sink."""
