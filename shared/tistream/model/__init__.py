"""Ids, timestamps, keys and key ranges. Pure."""
