"""Finds the change files of a store, reads what routing needs, and hands them on in chain order."""
