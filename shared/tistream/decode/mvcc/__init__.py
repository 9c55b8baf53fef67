"""Decodes what TiKV stores below transactions: versioned keys and write records (upstream-formats 4)."""
