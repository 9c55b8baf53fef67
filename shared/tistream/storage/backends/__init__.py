"""Implementations of ObjectStore: S3, a directory, memory."""
