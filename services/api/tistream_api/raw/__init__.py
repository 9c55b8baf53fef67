"""Reads of RawKV tenants: changes, and single values."""
