"""Reads, joins and writes a release on Spark executors; imports nothing of the driver."""
