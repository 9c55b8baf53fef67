"""Ids, timestamps, keys, spans of keys, and other values that the whole library uses. Pure."""
