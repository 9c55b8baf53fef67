"""The API token that commands send, from a file or the environment. A command line cannot contain it, because every
process of the machine can read command lines."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tistream_cli.errors import CliError

TOKEN_FILE, TOKEN = "TISTREAM_TOKEN_FILE", "TISTREAM_TOKEN"
_TEXT = re.compile(r"[!-~]+")


def remember(token_file: Path | None) -> None:
    """Store the value of option --token-file in the environment, where `headers` reads it."""
    if token_file is not None:
        os.environ[TOKEN_FILE] = str(token_file)


def headers() -> dict[str, str]:
    """The authorization header for API calls; empty without a token. Raises CliError if the file cannot be read or has
    no token."""
    path = os.environ.get(TOKEN_FILE)
    if path:
        try:
            where, text = path, Path(path).read_text("utf-8").strip()
        except (OSError, UnicodeError) as error:
            raise CliError(
                f"{TOKEN_FILE} {path}: {getattr(error, 'strerror', None) or 'is not text'}: name a file with a token"
            ) from error
    else:
        where, text = TOKEN, os.environ.get(TOKEN, "").strip()
        if not text:
            return {}
    if not _TEXT.fullmatch(text):
        raise CliError(f"{where} contains no valid token: `tistream token create --out FILE` writes one")
    return {"authorization": f"Bearer {text}"}
