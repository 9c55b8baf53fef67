"""What a command says when it cannot do its work: one line on stderr and exit status 1."""


class CliError(Exception):
    """The text is for the person at the terminal; it names what was tried and what to do."""
