"""Which territories a process holds: the one of its settings, or those that the meta servers give it."""
