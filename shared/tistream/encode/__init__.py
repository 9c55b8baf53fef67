"""Encodes rows that were read by SQL into the keys and values that TiKV stores. It is the inverse of
`tistream.decode`."""
