"""Simulates TiKV: regions, Percolator transactions, and the agents that push change files."""
