"""A TCP proxy before an API server, which cuts answers off: after some bytes of a connection's answers it closes it."""

from __future__ import annotations

import random
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

CUTS = (0, 30, 400, 3_000, 40_000, 1 << 30)  # before the head of an answer, in it, in its body; never


class CuttingProxy:
    """Each connection ends after a number of answered bytes that is drawn from CUTS. `cuts` counts these ends. With
    `tls`, clients speak TLS to it."""

    def __init__(self, port: int, seed: int, tls: ssl.SSLContext | None = None) -> None:
        self.cuts, self._tls = 0, tls
        self._port, self._draw = port, random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._ended = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self) -> None:
        """Take no more connections."""
        self._ended.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client, self._draw.choice(CUTS)), daemon=True).start()

    def _serve(self, client: socket.socket, left: int) -> None:
        if self._tls is not None:
            try:
                client = self._tls.wrap_socket(client, server_side=True)
            except OSError:  # the client does not trust it, or is not trusted
                client.close()
                return
        with client, socket.create_connection(("127.0.0.1", self._port)) as server:
            threading.Thread(target=_copy, args=(client, server), daemon=True).start()
            with suppress(OSError):
                while left > 0 and (data := server.recv(65_536)):
                    client.sendall(data[:left])
                    left -= len(data)
                self.cuts += left <= 0
                client.shutdown(socket.SHUT_RDWR)


def _copy(client: socket.socket, server: socket.socket) -> None:
    with suppress(OSError):
        while data := client.recv(65_536):
            server.sendall(data)
        server.shutdown(socket.SHUT_WR)


@contextmanager
def cutting(port: int, seed: int, tls: ssl.SSLContext | None = None) -> Iterator[CuttingProxy]:
    """A proxy before the server on `port` of this machine."""
    proxy = CuttingProxy(port, seed, tls)
    try:
        yield proxy
    finally:
        proxy.stop()
