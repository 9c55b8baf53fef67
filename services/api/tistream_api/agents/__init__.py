"""Agents and their territories, for operators."""
