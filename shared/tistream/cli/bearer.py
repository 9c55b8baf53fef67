"""The token that commands show to the API: from a file, or from the environment; never from the command line, which
every process of the machine may read."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tistream.cli.errors import CliError

TOKEN_FILE, TOKEN = "TISTREAM_TOKEN_FILE", "TISTREAM_TOKEN"
_TEXT = re.compile(r"[!-~]+")


def remember(token_file: Path | None) -> None:
    """What the option of `tistream` says, for whoever calls the API."""
    if token_file is not None:
        os.environ[TOKEN_FILE] = str(token_file)


def headers() -> dict[str, str]:
    """For each call; empty without a token. Raises CliError: the file cannot be read, or holds none."""
    path = os.environ.get(TOKEN_FILE)
    if path:
        try:
            where, text = path, Path(path).read_text("utf-8").strip()
        except (OSError, UnicodeError) as error:
            raise CliError(f"token file {path}: {getattr(error, 'strerror', None) or 'is no text'}") from error
    else:
        where, text = TOKEN, os.environ.get(TOKEN, "").strip()
        if not text:
            return {}
    if not _TEXT.fullmatch(text):
        raise CliError(f"{where} holds no token")
    return {"authorization": f"Bearer {text}"}
