"""What a command says when it cannot do its work: one line on stderr and an exit status."""


class CliError(Exception):
    """The text is for the person at the terminal; it names what was tried and what to do."""

    status = 1


class NoVerdict(CliError):
    """A judgement could not be made, or not of everything: neither good news nor a breach (status 1)."""

    status = 3
