"""Routes files to the tasks of a tenant, sends them, and records the files that each task has received."""
