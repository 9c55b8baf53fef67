"""What holds for every test."""

from hypothesis import settings

from support.not_run import pytest_terminal_summary

__all__ = ["pytest_terminal_summary"]

settings.register_profile("untimed", deadline=None)  # speed is measured in benchmarks, never in a test
settings.load_profile("untimed")
