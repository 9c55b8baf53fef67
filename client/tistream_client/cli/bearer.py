"""The API token that commands send, from a file or the environment. A command line cannot contain it, because every
process of the machine can read command lines."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from tistream_client.cli.errors import TOKEN, TOKEN_FILE, CliError

Signed = Callable[[], "dict[str, str]"]  # makes the header of one request

_TEXT = re.compile(r"[!-~]+")


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


class Signing:
    """The function `made`, which signs requests that have no token. The platform's command sets it in containers of
    services; None elsewhere."""

    made: Callable[[], Signed | None] | None = None


def sign_by(made: Callable[[], Signed | None]) -> None:
    """Set the function that `signer` calls. It returns a function that makes the header of one request; None: no key is
    set."""
    Signing.made = staticmethod(made)


def signer() -> Signed | None:
    """The function that makes the header of a request without a token; None if `sign_by` was not called, or no key is
    set. Raises CliError if the key cannot be read."""
    return None if Signing.made is None else Signing.made()
