"""Divides files among the tasks of a tenant, sends them to the sorters, and records which files each task has
received."""
