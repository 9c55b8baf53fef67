"""Secrets of tenants: they are sealed (encrypted) where they enter the platform, and opened only where a sink is
written. Pure."""
