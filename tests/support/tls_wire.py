"""Between a client and a server that speak TLS: damages what the server says, so that it cannot be read."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class TlsWire:
    """Listens at `endpoint`, passes on to 127.0.0.1:`port`."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"https://127.0.0.1:{self._listening.getsockname()[1]}"
        self.damaged = 0  # how often
        self.connections = 0  # that were made so far
        self._when: Callable[[int], bool] = lambda _said: False
        self._said = 0
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def damage(self, when: Callable[[int], bool]) -> None:
        """What the server says once `when` is true, the first time. It is asked for each piece, with how many bytes
        the server has said from now on."""
        self._when, self._said = when, 0

    def close(self) -> None:
        """Stop listening."""
        for one in [self._listening, *self._sockets]:
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                self._sockets += [client, server]
                self.connections += 1
                threading.Thread(target=_passed_on, args=(client, server), daemon=True).start()
                threading.Thread(target=self._answered, args=(server, client), daemon=True).start()

    def _answered(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                client.sendall(self._spoilt(data))
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def _spoilt(self, data: bytes) -> bytes:
        self._said += len(data)
        if not self._when(self._said):
            return data
        self._when = lambda _said: False
        self.damaged += 1
        return data[:-1] + bytes([data[-1] ^ 1])


def _passed_on(client: socket.socket, server: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := client.recv(1 << 16):
            server.sendall(data)
    with contextlib.suppress(OSError):
        server.shutdown(socket.SHUT_RDWR)


@contextmanager
def tls_wired(port: int) -> Iterator[TlsWire]:
    """A proxy to 127.0.0.1:`port`."""
    wire = TlsWire(port)
    try:
        yield wire
    finally:
        wire.close()
