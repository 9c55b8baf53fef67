"""Builds the SQL statements of restores and undos: literals and comparisons of TiDB's types, INSERTs, and the
statements that undo transactions. Pure."""
