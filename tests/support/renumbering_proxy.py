"""A TCP proxy before a MySQL server, which tells each client another id of its session than the server's."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

OFFSET = 1_000_000  # added to the ids
_HEAD = 4  # bytes before the server's first packet: its length, and its number


@contextmanager
def renumbering(port: int) -> Iterator[int]:
    """Yields the port of a proxy before the server on `port` of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_accept, args=(listener, port), daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, port: int) -> None:
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            threading.Thread(target=_serve, args=(client, port), daemon=True).start()


def _serve(client: socket.socket, port: int) -> None:
    with client, socket.create_connection(("127.0.0.1", port)) as server, suppress(OSError):
        head = _exactly(server, _HEAD)
        packet = bytearray(_exactly(server, int.from_bytes(head[:3], "little")))
        at = packet.index(0, 1) + 1  # behind the protocol's number and the version of the server
        number = int.from_bytes(packet[at : at + 4], "little") + OFFSET
        packet[at : at + 4] = number.to_bytes(4, "little")
        client.sendall(head + packet)
        threading.Thread(target=_copy, args=(client, server), daemon=True).start()
        _copy(server, client)


def _exactly(server: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        data = server.recv(count - len(found))
        if not data:
            raise OSError("the server has closed the connection")
        found += data
    return found


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_RDWR)
