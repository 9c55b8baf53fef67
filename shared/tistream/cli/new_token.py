"""A token that nobody knows yet, and how it comes to who is to have it."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

from tistream.cli.errors import CliError


def new_token(out: Path | None) -> None:
    """Make one for FIRST_TOKEN_FILE, and hand it over. Raises CliError."""
    hand_over(f"tst_{secrets.token_hex(8)}_{secrets.token_urlsafe(32)}", out)


def hand_over(token: str, out: Path | None) -> None:
    """On stdout, or in a new file that its owner alone may read. Raises CliError: then it is on stdout all the same,
    since it may be valid already."""
    if out is not None:
        try:
            with open(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
                file.write(token + "\n")
            return
        except OSError as error:
            sys.stdout.write(token + "\n")
            raise CliError(f"cannot make {out}: {error.strerror}; the token is on stdout") from error
    sys.stdout.write(token + "\n")
