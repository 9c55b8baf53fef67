"""Reads row groups by signed ranges of the object store, in a process that has no credentials of the store."""
