"""Plans the undo of transactions from their changes and the present rows (docs/restore.md)."""
