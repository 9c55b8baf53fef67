"""Secrets of tenants: sealed where they enter the platform, opened only where a sink is written. Pure."""
