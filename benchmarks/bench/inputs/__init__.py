"""Loads, made from a seed."""
