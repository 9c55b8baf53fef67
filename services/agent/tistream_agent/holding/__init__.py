"""Runs the territories that a process holds: the one in its settings, or those that the meta servers assign to it."""
