"""Answers reads at a point in time: a table's rows as of a ts, a row's history, a transaction, and what differs between
two timestamps (docs/points-in-time.md)."""
