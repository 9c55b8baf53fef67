"""Follows tenants: their tasks' logs, their schema, and how far their rows are complete."""
