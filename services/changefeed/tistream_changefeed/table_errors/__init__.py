"""Handles events that cannot be sent: the rules of the configuration say whether the table stops. Pure."""
