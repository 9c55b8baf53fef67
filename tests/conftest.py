"""What holds for every test."""

from support.not_run import pytest_terminal_summary

__all__ = ["pytest_terminal_summary"]
