"""Measurements behind decisions about libraries (docs/adr). Each is run by hand; none is part of `make bench`."""
