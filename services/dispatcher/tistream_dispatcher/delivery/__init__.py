"""Routes files to the tasks of a tenant, sends them, and records what each task has received."""
