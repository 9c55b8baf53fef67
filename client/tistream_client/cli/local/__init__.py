"""Contexts and times: commands that ask no server."""
