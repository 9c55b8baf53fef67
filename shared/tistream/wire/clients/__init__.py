"""Clients of the services' HTTP contracts."""
