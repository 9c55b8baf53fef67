"""The undo of transactions: their changes, the rows as they are now, and the plan (docs/restore.md)."""
