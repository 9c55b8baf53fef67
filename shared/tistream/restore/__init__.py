"""Builds SQL statements that restore rows: literals and comparisons of TiDB's types, and the undo of transactions.
Pure."""
