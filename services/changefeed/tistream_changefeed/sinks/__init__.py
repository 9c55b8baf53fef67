"""Sinks: the systems that a feed writes to. A sink stores messages and progress in one atomic step."""
