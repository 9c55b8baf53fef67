"""The expressions of filters, in MySQL's semantics, over decoded columns. Changefeeds, pulls and reads of rows share
them. Pure."""
