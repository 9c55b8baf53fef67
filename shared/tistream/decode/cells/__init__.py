"""Finds the bytes of each column (its cell) in a row value, and decodes them by the column's type."""
