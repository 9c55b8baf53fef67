"""`tistream connect`: checks a cluster, stores its schema, registers it as a tenant, and prints how to run its
agent."""
