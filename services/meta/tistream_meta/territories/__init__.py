"""Territories: ranges of a tenant's keys, each with the agent that reads TiKV's change stream of it."""
