"""Encodes rows that SQL has read into the keys and values that TiKV stores: the way back of `tistream.decode`."""
