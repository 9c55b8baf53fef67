"""Runs the territories (spans of keys) that a process reads: the one in its settings, or those that the meta servers
assign to it."""
