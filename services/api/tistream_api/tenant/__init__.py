"""What this server knows of each tenant: its tasks' logs, its schema, its progress."""
