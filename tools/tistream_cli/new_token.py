"""Generates a token, and writes it to stdout or to a file that only the user can read."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

from tistream_client.cli.errors import CliError


def new_token(out: Path | None) -> None:
    """Generate a token for FIRST_TOKEN_FILE, and write it as `hand_over` does. Raises CliError."""
    hand_over(f"tst_{secrets.token_hex(8)}_{secrets.token_urlsafe(32)}", out)


def hand_over(token: str, out: Path | None) -> None:
    """Write a token to stdout, or to a new file that only its owner can read. If the file cannot be created, write the
    token to stdout, because it may be valid already, and raise CliError."""
    if out is not None:
        try:
            with open(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
                file.write(token + "\n")
            return
        except OSError as error:
            sys.stdout.write(token + "\n")
            raise CliError(f"cannot create {out}: {error.strerror}; the token is on stdout") from error
    sys.stdout.write(token + "\n")
