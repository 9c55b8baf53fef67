"""Selects events by a filter: of pulls in the API server, and of readers of signed ranges in their own processes."""
