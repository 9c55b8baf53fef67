"""Territories of agents: ranges of keys, and the agent that reads the change stream of each."""
