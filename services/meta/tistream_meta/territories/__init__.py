"""Territories of agents: which process holds the change stream of which keys."""
