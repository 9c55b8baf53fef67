"""Finds the change files of a store, reads the parts that routing needs, and returns them in chain order."""
