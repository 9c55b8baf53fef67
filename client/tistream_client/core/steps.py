"""The steps that the core yields to a transport. A read is a generator: it yields a Fetch, and receives its Reply; it
yields a Wait, and continues after it; everything else that it yields is a result for the caller."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TypeVar


@dataclass(frozen=True, slots=True)
class Fetch:
    """A step: send a GET of `path`, which is percent-encoded, with the query `params`, and pass its Reply to the
    generator."""

    path: str
    params: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Wait:
    """A step: wait for `seconds` seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer of the server: every byte that its framing announced has arrived. Names of `headers` are in
    lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes | bytearray


@dataclass(frozen=True, slots=True)
class Lost:
    """The result of a request without an answer, or with one that ended early. `reason` is the text of the error.
    `connected`: whether a server accepted the connection."""

    reason: str
    connected: bool


T = TypeVar("T")
R = TypeVar("R")
Reply = Answer | Lost | None
Asking = Generator[Fetch | Wait, Reply, R]
Reading = Generator[Fetch | Wait | T, Reply, None]
