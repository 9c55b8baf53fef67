"""Parses requests: path, parameters, body. It does not authorize callers."""
