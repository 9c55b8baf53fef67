"""The work of the elected owner: election, scheduling, routes."""
