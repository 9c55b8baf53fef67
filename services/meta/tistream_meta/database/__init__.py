"""Reads and writes the meta database: its tables, the rows of each, and transactions."""
