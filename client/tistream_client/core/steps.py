"""What the core wants of a transport. A read is a generator: it yields a Fetch, and receives its Reply; it yields a
Wait, and continues after it; everything else that it yields is a result for the caller."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TypeVar


@dataclass(frozen=True, slots=True)
class Fetch:
    """Send a GET, and return its Reply. `path` is percent-encoded."""

    path: str
    params: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait that many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server sent, to the last byte that its framing announced. Names of `headers` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes | bytearray


@dataclass(frozen=True, slots=True)
class Lost:
    """No answer, or one that ended early. `connected`: whether a server accepted the connection."""

    reason: str
    connected: bool


T = TypeVar("T")
R = TypeVar("R")
Reply = Answer | Lost | None
Asking = Generator[Fetch | Wait, Reply, R]
Reading = Generator[Fetch | Wait | T, Reply, None]
