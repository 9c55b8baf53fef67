"""Filters of a feed: which tables, kinds of events, rows (by expressions) and columns it leaves out. Pure."""
