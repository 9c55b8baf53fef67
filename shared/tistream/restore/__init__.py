"""Statements that bring rows back: literals and comparisons of TiDB's types, and the undo of transactions. Pure."""
