"""Answers from the view of a tenant: its databases and tables, whether the platform is ready, and whether a ts can be
read."""
