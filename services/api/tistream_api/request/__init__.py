"""Parses requests: path, parameters, body. It does not decide which callers may make them."""
