"""Decodes the entries of TiKV's column families: versioned keys and write records (upstream-formats 8)."""
