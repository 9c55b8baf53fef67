"""Regions, Percolator, and the agents that push change files."""
