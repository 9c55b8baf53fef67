"""`tistream restore` and `tistream undo`."""
