"""HTTP clients for the calls between services."""
