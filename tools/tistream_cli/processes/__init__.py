"""The child processes of `tistream up`: forked or started, watched, started again, and ended."""
