"""Serves an emulated cluster over gRPC: PD and each store on a port of 127.0.0.1, with mutual TLS if certificates are
given."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc

from tistream.clock import Clock
from tistream.errors import InvalidRequest
from tistream_upstream.emulator.model.counters import Counters
from tistream_upstream.emulator.model.upstream import Upstream
from tistream_upstream.emulator.pd_service import pd_handlers
from tistream_upstream.emulator.shared_cluster import Service, Shared
from tistream_upstream.emulator.tikv_service import store_handlers

_MESSAGE_BYTES = 256 << 20
_THREADS = 64  # of one server; each stream holds one
_PUMP_S = 0.005
_OPTIONS = (
    ("grpc.max_receive_message_length", _MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MESSAGE_BYTES),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.so_reuseport", 0),
)


@dataclass(frozen=True, slots=True)
class Certificates:
    """The PEM files of a server: its certificate and key, and the authority that signs clients' certificates."""

    ca: Path
    cert: Path
    key: Path

    @classmethod
    def of(cls, folder: Path) -> Certificates:
        """Find `ca.pem`, `server.pem` and `server-key.pem` in a folder. Raises InvalidRequest if one is missing."""
        found = cls(folder / "ca.pem", folder / "server.pem", folder / "server-key.pem")
        missing = [str(path) for path in (found.ca, found.cert, found.key) if not path.is_file()]
        if missing:
            raise InvalidRequest(
                f"no such file: {', '.join(missing)}; a TLS directory has ca.pem, server.pem and server-key.pem"
            )
        return found

    def credentials(self) -> grpc.ServerCredentials:
        """Server credentials that require a certificate of the client."""
        pair = (self.key.read_bytes(), self.cert.read_bytes())
        return grpc.ssl_server_credentials([pair], self.ca.read_bytes(), require_client_auth=True)


class EmulatedCluster:
    """Runs the servers of PD and the stores, and a thread that advances their clock.

    Args:
        clock: real time.
        speed: seconds of the cluster in one second.
        held: the cluster's time begins with the first registration of a region that exists, not with `start`. A
            registration of a region that does not exist is a probe of `tistream connect`.
        listen: host and port of PD; port 0 takes a free one. Stores take free ports of the host.
        certificates: those of the servers; None: no TLS.
    """

    def __init__(
        self,
        upstream: Upstream,
        clock: Clock,
        speed: float = 1.0,
        held: bool = False,
        listen: str = "127.0.0.1:0",
        certificates: Certificates | None = None,
    ) -> None:
        self.shared = Shared(upstream)
        self.shared.held = held
        self._clock, self._speed = clock, speed
        self._credentials = None if certificates is None else certificates.credentials()
        host, _, port = listen.rpartition(":")
        self._servers: list[grpc.Server] = []
        for number in upstream.stores:
            self.shared.addresses[number] = f"{host}:{self._serve(store_handlers(self.shared, number), f'{host}:0')}"
        bound = self._serve(pd_handlers(self.shared), f"{host}:{port}")
        self.pd_address = f"{host}:{bound}"
        self.shared.pd_url = f"{'http' if certificates is None else 'https'}://{self.pd_address}"
        self._pump = threading.Thread(target=self._run, name="emulated-clock", daemon=True)

    def _serve(self, handlers: list[Service], address: str) -> int:
        server = grpc.server(ThreadPoolExecutor(_THREADS), handlers=handlers, options=_OPTIONS)
        try:
            if self._credentials is None:
                bound = server.add_insecure_port(address)
            else:
                bound = server.add_secure_port(address, self._credentials)
        except RuntimeError as error:
            raise InvalidRequest(f"cannot listen on {address}: {error}") from error
        self._servers.append(server)
        return int(bound)

    def start(self) -> None:
        """Start the servers, and the thread that advances the clock."""
        for server in self._servers:
            server.start()
        self._pump.start()

    def stop(self) -> None:
        """End all streams and servers."""
        with self.shared.changed:
            self.shared.stopping = True
            self.shared.changed.notify_all()
        for stopped in [server.stop(0) for server in self._servers]:
            stopped.wait()
        if self._pump.is_alive():
            self._pump.join()

    def __enter__(self) -> EmulatedCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def counters(self) -> Counters:
        """The load that clients have caused so far. The counters change while the cluster is served."""
        return self.shared.upstream.counters

    def _run(self) -> None:
        shared = self.shared
        began_ms: int | None = None
        begun_us = shared.upstream.now_us
        while not shared.stopping:
            with shared.changed:
                if not shared.held:
                    now = self._clock.monotonic_ms()
                    began_ms = now if began_ms is None else began_ms
                    shared.advance(begun_us + int((now - began_ms) * 1_000 * self._speed))
                shared.changed.wait(_PUMP_S)
