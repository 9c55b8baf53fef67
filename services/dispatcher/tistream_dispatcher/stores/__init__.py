"""Finds the change files of a store, reads the parts that decide to which tasks they go, and returns them in chain
order."""
