"""Everything that goes over the loopback interface while something runs, to look for what must not be read there."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from support.not_run import not_run

_EVERY_PROTOCOL = 3


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
    tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
    tap.settimeout(0.2)
    seen, over = Seen(texts), threading.Event()

    def read() -> None:
        while not over.is_set():
            try:
                seen.look(tap.recv(1 << 17))
            except TimeoutError:
                continue

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield seen
    finally:
        over.set()
        reader.join()
        tap.close()
