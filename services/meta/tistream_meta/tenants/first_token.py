"""Reads the first token from a file that an operator made. It is needed because no API call can create a token without
one."""

from __future__ import annotations

from pathlib import Path

from tistream.wire.tokens import EVERYTHING, StoreToken, hash_of, parse_token

LABEL = "first token"


def first_token(path: Path | None) -> StoreToken | None:
    """The token in the file, in the form in which it is stored; None if no path is given. Raises ValueError if the file
    contains no token, and OSError if it cannot be read. The caller lets these errors end the process, because a
    platform without a usable token should not start."""
    if path is None:
        return None
    found = parse_token(path.read_text("utf-8").strip())
    if found is None:  # The text is not quoted: it may be a token that was badly copied.
        raise ValueError(f"{path} has no token: `tistream token new --out {path}` writes one")
    token_id, secret = found
    return StoreToken(token_id=token_id, secret_hash=hash_of(secret), label=LABEL, grants=[EVERYTHING])
