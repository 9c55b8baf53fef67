"""The actor of a request: who made it, and from which address. The API server sends the actor in the header
`tistream-actor` of every call to another process, so that the meta server can record it in the audit log. It ignores
this header in requests of clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

HEADER = "tistream-actor"
NAME_MAX = 200
ADDRESS_MAX = 64


@dataclass(frozen=True, slots=True)
class Actor:
    """The actor of a request. `name` is a token's id, an OpenID subject, or `everybody` if authentication is off.
    `address` is the peer of the connection, which may be a proxy; None if it is unknown."""

    name: str
    address: str | None


_current: ContextVar[Actor | None] = ContextVar("tistream_actor", default=None)


def current() -> Actor | None:
    """The actor on whose behalf the current code runs; None if no caller requested the work."""
    return _current.get()


@contextmanager
def acted_by(actor: Actor) -> Iterator[None]:
    """Set the actor during a `with` block, also for calls that the block submits to other threads."""
    token = _current.set(actor)
    try:
        yield
    finally:
        _current.reset(token)


def to_header(actor: Actor) -> str:
    """Encode the actor as the text of a header: ASCII, on one line. `from_header` is the inverse."""
    return json.dumps({"name": actor.name[:NAME_MAX], "address": actor.address})


def from_header(text: str | None) -> Actor | None:
    """Parse the text of a header that `to_header` encoded. Returns None for any other text, and for None."""
    try:
        parsed = json.loads(text or "")
    except ValueError:
        return None
    if not isinstance(parsed, dict):
        return None
    name, address = parsed.get("name"), parsed.get("address")
    if not isinstance(name, str) or not 0 < len(name) <= NAME_MAX:
        return None
    if address is not None and not (isinstance(address, str) and len(address) <= ADDRESS_MAX and address.isascii()):
        return None
    return Actor(name, address)
