"""Who a request is made by, and from where. The API server says it with every call to another process, so that the meta
server can write it down; a client's own header of that name is never read there.
"""

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
    """`name`: a token's id, an OpenID subject, or `everybody` where authentication is off. `address`: the peer of the
    connection, which is a proxy's where there is one; None: not known."""

    name: str
    address: str | None


_current: ContextVar[Actor | None] = ContextVar("tistream_actor", default=None)


def current() -> Actor | None:
    """Who asked for what runs here; None: nobody did."""
    return _current.get()


@contextmanager
def acted_by(actor: Actor) -> Iterator[None]:
    """Whatever is done inside, also in threads that it hands work to, this one asked for."""
    token = _current.set(actor)
    try:
        yield
    finally:
        _current.reset(token)


def spelled(actor: Actor) -> str:
    """As a header's value: ASCII, on one line."""
    return json.dumps({"name": actor.name[:NAME_MAX], "address": actor.address})


def read(text: str | None) -> Actor | None:
    """What `spelled` has made; None for anything else."""
    try:
        told = json.loads(text or "")
    except ValueError:
        return None
    if not isinstance(told, dict):
        return None
    name, address = told.get("name"), told.get("address")
    if not isinstance(name, str) or not 0 < len(name) <= NAME_MAX:
        return None
    if address is not None and not (isinstance(address, str) and len(address) <= ADDRESS_MAX and address.isascii()):
        return None
    return Actor(name, address)
