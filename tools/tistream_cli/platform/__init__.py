"""`tistream up` and `tistream demo`: a platform as child processes of one command."""
