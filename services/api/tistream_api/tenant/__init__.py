"""Answers from what this process knows of a tenant: its databases and tables, whether the platform is ready, and
whether a ts can be read."""
