"""Reads of tenants of RawKV: their changes, and single values."""
