"""Everything that goes over the loopback interface while something runs, to look for what must not be read there."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from support.not_run import not_run
from support.waiting import eventually

_EVERY_PROTOCOL = 3
_SO_RCVBUFFORCE = 33
_DISCARD = 9  # the port that nobody listens on


class Seen:
    """How often each text went by."""

    def __init__(self, texts: tuple[bytes, ...]) -> None:
        self.counts = dict.fromkeys(texts, 0)
        self.packets = 0

    def look(self, packet: bytes) -> None:
        self.packets += 1
        for text in self.counts:
            self.counts[text] += packet.count(text)


@contextmanager
def watched(*texts: bytes) -> Iterator[Seen]:
    """Packets from now on. Needs the right to read them (root)."""
    try:
        tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_EVERY_PROTOCOL))
    except (AttributeError, PermissionError) as error:
        not_run(f"packets of the loopback interface cannot be read: {error}")
    tap.bind(("lo", 0))
    with suppress(PermissionError):
        tap.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 64 << 20)  # a reader that is late loses nothing
    seen, last = Seen(texts), os.urandom(16)

    def read() -> None:
        while last not in (packet := tap.recv(1 << 17)):
            seen.look(packet)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield seen
    finally:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as over:

            def has_read_all() -> bool:
                over.sendto(last, ("127.0.0.1", _DISCARD))
                return not reader.is_alive()

            eventually(has_read_all)
        tap.close()
