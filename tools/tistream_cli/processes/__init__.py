"""Runs the child processes of `tistream up`: starts or forks them, watches them, restarts them, and ends them."""
