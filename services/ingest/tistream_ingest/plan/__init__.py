"""Decides which changes of a log backup are released, and how the work is divided. Pure."""
