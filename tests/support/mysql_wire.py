"""Between a client and a MySQL server: loses what one of them says, at the moment that matters."""

from __future__ import annotations

import contextlib
import socket
import threading
from enum import Enum

from sqlalchemy.engine import make_url

COMMIT, ROLLBACK = b"\x03COMMIT", b"\x03ROLLBACK"  # queries, in packets of their own
CLIENT_SSL = 0x08  # in the second byte of the server's capabilities


class Lose(Enum):
    """Of the next COMMIT."""

    NOTHING = "nothing"
    COMMIT = "commit"  # the server never hears of it
    ANSWER = "answer"  # it is done, and the client never hears that


class Wire:
    """Listens on a port of its own. `lose` holds for one COMMIT of a transaction that has said `of`, and both
    connections end with it."""

    def __init__(self, url: str, of: bytes = b"") -> None:
        self._of = of
        self._server = make_url(url)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = self._server.set(port=self._listening.getsockname()[1]).render_as_string(hide_password=False)
        self.lose = Lose.NOTHING
        self.lost = 0
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection((self._server.host or "", self._server.port or 0))
                self._sockets += [client, server]
                threading.Thread(target=self._asked, args=(client, server), daemon=True).start()

    def _asked(self, client: socket.socket, server: socket.socket) -> None:
        threading.Thread(target=self._answered, args=(client, server), daemon=True).start()
        said = False
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                said |= self._of in data
                lose = self.lose if said and data.endswith(COMMIT) else Lose.NOTHING
                said &= not data.endswith((COMMIT, ROLLBACK))
                if lose is not Lose.NOTHING:
                    self.lose = Lose.NOTHING
                    self.lost += 1
                    client.shutdown(socket.SHUT_WR)
                if lose is Lose.COMMIT:
                    break
                server.sendall(data)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)  # closing does not end it while it is read

    @staticmethod
    def _answered(client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            client.sendall(_without_tls(server.recv(1 << 16)))
            while data := server.recv(1 << 16):
                client.sendall(data)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for one in [self._listening, *self._sockets]:
            one.close()


def _without_tls(greeting: bytes) -> bytes:
    """The server's first packet, as a server without TLS sends it: what is encrypted cannot be read on the way."""
    told = bytearray(greeting)
    if told:  # header, protocol, version, connection id, salt, filler, capabilities
        told[greeting.index(0, 5) + 1 + 4 + 8 + 1 + 1] &= ~CLIENT_SSL
    return bytes(told)
