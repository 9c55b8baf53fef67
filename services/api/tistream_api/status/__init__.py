"""Explains why a tenant is late, and which nodes hold its tasks and stores."""
