"""Finds the subscription that each received event belongs to, and counts what was received."""
