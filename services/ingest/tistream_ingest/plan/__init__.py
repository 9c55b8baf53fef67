"""Decides what a source releases. Pure."""
