"""HTTP routes with which operators manage the territories of agents (ranges of keys that an agent reads)."""
