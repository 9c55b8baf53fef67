"""Errors of commands. `main` prints an error as one line on stderr, and exits with its status."""


class CliError(Exception):
    """A command failed. The text names what was attempted, and what to do."""

    status = 1


class NoVerdict(CliError):
    """A verification could not begin, or was not complete. So it shows neither success nor a violation, and has an exit
    status of its own."""

    status = 3
