"""`tistream restore` writes tables as they were into a server or files. `tistream undo` reverts transactions."""
