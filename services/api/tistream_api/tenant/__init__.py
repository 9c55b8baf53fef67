"""What callers ask of a tenant's view: its tables, its readiness, its times."""
