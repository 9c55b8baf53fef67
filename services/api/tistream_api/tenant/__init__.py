"""The state of each tenant that this server serves: its tasks' logs, its schema, its progress."""
