"""Rules that choose tables and columns by name, in the syntax of TiDB's tools. Pure."""
