"""Several meta servers in one process, over real HTTP, on one database."""

from __future__ import annotations

import httpx
import orjson

from support.http_world import Server
from support.platform import free_port
from support.waiting import eventually
from tistream.clock import SystemClock
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.memory import MemoryObjectStore
from tistream.wire.client import HttpClient
from tistream.wire.meta_client import MetaClient
from tistream_meta.app import build_app
from tistream_meta.server import MetaServer
from tistream_meta.settings import MetaSettings

ACME = TenantKey("7", "acme")
LEASE_MS = 3_000  # long enough for a machine that does other things too


class Metas:
    """So many meta servers over real HTTP."""

    def __init__(self, url: str, count: int, lost_ms: int = 2_500, **settings: int) -> None:
        self.lost_ms, self.url, self.settings = lost_ms, url, settings
        self.objects = MemoryObjectStore()
        self.objects.put(layout.schema_snap(ACME), orjson.dumps({"version": 1, "snapshot_ts": 42, "databases": []}))
        self.ports = [free_port() for _ in range(count)]
        self.servers: dict[int, Server] = {}
        for number in range(count):
            self.start(number)
        self.http = HttpClient(deadline_s=5)

    def start(self, number: int) -> None:
        settings = MetaSettings(
            port=self.ports[number],
            node_id=f"meta-{number}",
            database_url=self.url,
            suspect_ms=1_000,
            lost_ms=self.lost_ms,
            check_ms=20,
            snapshot_retry_max_ms=50,
            **{"lease_ms": LEASE_MS, **self.settings},
        )
        self.servers[number] = Server(build_app(settings, self.objects, SystemClock()), self.ports[number])

    def stop(self, number: int) -> None:
        self.servers.pop(number).stop()

    def server(self, number: int) -> MetaServer:
        server: MetaServer = self.servers[number].app.state.server
        return server

    def owners(self) -> list[int]:
        return [number for number in self.servers if self.server(number).is_owner()]

    def owner(self) -> int:
        """The one owner, once there is one and everybody is ready."""
        eventually(lambda: len(self.owners()) == 1)
        eventually(lambda: all(self.ready(number) for number in self.servers))
        return self.owners()[0]

    def ready(self, number: int) -> bool:
        return httpx.get(f"{self.servers[number].url}/readyz", timeout=5).status_code == 200

    def client(self, *numbers: int) -> MetaClient:
        """Of those, or of all."""
        return MetaClient(
            self.http, ",".join(f"http://127.0.0.1:{self.ports[n]}" for n in numbers or range(len(self.ports)))
        )

    def end(self) -> None:
        for number in list(self.servers):
            self.stop(number)
        self.http.close()
