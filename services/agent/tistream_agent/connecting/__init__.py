"""`tistream connect`: checks a cluster, stores the schema and the first file of a new tenant, and prints how to run its
agent."""
