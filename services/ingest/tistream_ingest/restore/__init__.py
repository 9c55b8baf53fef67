"""Restores that the platform runs: tables as of a ts, read on Spark executors and written by them into a target."""
