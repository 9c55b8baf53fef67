"""Runs restores: Spark executors read tables as of a ts, and write them into a target, such as a MySQL server or
files."""
