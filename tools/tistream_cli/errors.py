"""Errors of commands. `main` prints an error as one line on stderr, and exits with its status."""


class CliError(Exception):
    """Raised if a command failed. The text names what was attempted, and what to do."""

    status = 1


class NoVerdict(CliError):
    """Raised if a verification could not begin, or was not complete. So it shows neither success nor a violation, and
    has an exit status of its own."""

    status = 3
