"""Simulates TiKV: its regions, Percolator transactions, and the agents that push change files."""
