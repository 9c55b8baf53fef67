"""Checks streams of events: against the API's rules, and against the truth that the upstream has recorded. Pure."""
