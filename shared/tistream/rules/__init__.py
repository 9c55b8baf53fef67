"""Filters of tables and columns by name, in the syntax of TiDB's tools. A filter is a list of rules, each a pattern.
Pure."""
