"""Reads a window of a tenant's committed rows as events, in bounded memory."""
