"""Several meta servers in one process, over real HTTP, on one database."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import orjson
from sqlalchemy import create_engine, text

from support import plain_http
from support.ahead_clock import AheadClock
from support.http_world import Server
from support.platform import free_port
from support.waiting import PATIENCE_S, eventually
from tistream.errors import Unavailable
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient
from tistream_meta.app import build_app
from tistream_meta.owner.server import MetaServer
from tistream_meta.settings import MetaSettings

T = TypeVar("T")
ACME = TenantKey("7", "acme")
LEASE_MS = 600_000  # longer than any thread stalls: it ends where a test says so (`Metas.lease_ends`)
LOST_MS = 100_000  # the same: time passes on `Metas.clock`


class Metas:
    """Several meta servers over real HTTP, on one database."""

    def __init__(self, url: str, count: int, **settings: int) -> None:
        self.url, self.settings = url, settings
        self.clock = AheadClock()
        self.objects = MemoryObjectStore()
        self.objects.put(layout.schema_snap(ACME), orjson.dumps({"version": 1, "snapshot_ts": 42, "databases": []}))
        self.ports = [free_port() for _ in range(count)]
        self.servers: dict[int, Server] = {}
        for number in range(count):
            self.start(number)
        self.http = HttpClient(deadline_s=PATIENCE_S)

    def start(self, number: int) -> None:
        settings = MetaSettings(
            port=self.ports[number],
            node_id=f"meta-{number}",
            database_url=self.url,
            suspect_ms=LOST_MS // 2,
            lost_ms=LOST_MS,
            check_ms=20,
            snapshot_retry_max_ms=50,
            **{"lease_ms": LEASE_MS, **self.settings},
        )
        self.servers[number] = Server(build_app(settings, self.objects, self.clock), self.ports[number])

    def stop(self, number: int) -> None:
        self.servers.pop(number).stop()

    def server(self, number: int) -> MetaServer:
        server: MetaServer = self.servers[number].app.state.server
        return server

    def owners(self) -> list[int]:
        """At one moment: those that were the owner before the last one was asked, and still are, elected once."""
        revs = {number: self._owns(number) for number in self.servers}
        return [number for number, rev in revs.items() if rev and self._owns(number) == rev]

    def _owns(self, number: int) -> int:
        server = self.server(number)
        rev = server._ownership.rev
        return rev if server.is_owner() else 0

    def lease_ends(self) -> None:
        """The lease of whoever is the owner is over, as the database tells, and by everybody's clock."""
        self.clock.advance(LEASE_MS)
        with create_engine(self.url).begin() as connection:
            connection.execute(text("UPDATE owner SET lease_until_ms = 0"))

    def turn(self, *numbers: int) -> None:
        """Let some meta servers, or all, renew or take the lease, as their loop does at each sixth of it."""
        for number in numbers or list(self.servers):
            self.server(number).hold_lease()

    def owner(self) -> int:
        """Wait until there is one owner and all servers are ready; returns the owner."""
        eventually(lambda: len(self.owners()) == 1)
        eventually(lambda: all(self.ready(number) for number in self.servers))
        return self.owners()[0]

    def ready(self, number: int) -> bool:
        return plain_http.get(f"{self.servers[number].url}/readyz").status_code == 200

    def client(self, *numbers: int) -> MetaClient:
        """A client of some meta servers, or of all."""
        return MetaClient(
            self.http, ",".join(f"http://127.0.0.1:{self.ports[n]}" for n in numbers or range(len(self.ports)))
        )

    def end(self) -> None:
        for number in list(self.servers):
            self.stop(number)
        self.http.close()


def asked(call: Callable[[], T]) -> T:
    """Its answer, once there is an owner to give one."""
    got = list[T]()
    eventually(lambda: done(lambda: got.append(call())))
    return got[-1]


def done(action: Callable[[], object]) -> bool:
    try:
        action()
    except Unavailable:
        return False
    return True
