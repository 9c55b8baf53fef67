"""`tistream up` and the demos. They run a platform on this machine, as child processes of one command."""
