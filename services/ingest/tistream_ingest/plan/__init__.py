"""Decides which changes of a log backup the next release (one step of reading it) has, and how the work is divided
among shards and files. Pure."""
