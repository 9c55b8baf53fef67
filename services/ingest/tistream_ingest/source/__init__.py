"""Runs log backups as sources: reads the bucket of a log backup, and writes the change files of its releases."""
