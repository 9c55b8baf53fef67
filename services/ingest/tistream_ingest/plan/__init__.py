"""Decides which changes of a log backup the next release has, and how the work is divided among shards and files.
Pure."""
