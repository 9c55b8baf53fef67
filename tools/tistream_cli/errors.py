"""Errors of commands: one line on stderr and an exit status."""


class CliError(Exception):
    """A command failed. The text names the attempted action, and what to do."""

    status = 1


class NoVerdict(CliError):
    """A verification could not be made, or was not complete. The result is neither success nor a violation (status
    1)."""

    status = 3
