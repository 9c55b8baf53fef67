"""`tistream up` and the demos: they run a platform as child processes of one command."""
