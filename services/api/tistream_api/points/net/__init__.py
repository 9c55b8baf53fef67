"""Computes net changes, that is, for each key the difference between its rows at two timestamps: DiffTable, and pulls
with squash=true."""
