"""`tistream connect`: checks of a cluster, what is stored for a new tenant, and how its agent is started."""
