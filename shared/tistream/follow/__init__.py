"""Follows tenants: the logs of their tasks, their schema, and the ts up to which their rows are complete."""
