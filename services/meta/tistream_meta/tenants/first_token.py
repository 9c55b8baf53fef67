"""The first token: a file that an operator made, since nobody can ask for one before there is any."""

from __future__ import annotations

from pathlib import Path

from tistream.wire.tokens import EVERYTHING, StoreToken, hash_of, take_apart

LABEL = "first token"


def first_token(path: Path | None) -> StoreToken | None:
    """What is to be kept of the token in the file; None without one. Raises ValueError if it holds none, OSError if it
    cannot be read: a platform that nobody can use should not start."""
    if path is None:
        return None
    found = take_apart(path.read_text("utf-8").strip())
    if found is None:  # and not what it holds: it may be a token all the same, badly copied
        raise ValueError(f"{path} holds no token: `tistream token new` makes one")
    token_id, secret = found
    return StoreToken(token_id=token_id, secret_hash=hash_of(secret), label=LABEL, grants=[EVERYTHING])
