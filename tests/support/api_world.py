"""The whole platform in one process, over real HTTP: only Spark is left out (tests/support/http_world.py)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import golden
from support.golden import GoldenSet
from support.http_world import CLOCK, Server, World, never_superseded, running
from support.platform import free_port
from support.pull import Consumer
from support.waiting import eventually
from tistream.storage.object_store import ObjectStore
from tistream.wire.clients.client import HttpClient
from tistream_api.app import build_app as build_api
from tistream_api.settings import ApiSettings
from tistream_schema.app import build_app as build_schema
from tistream_schema.settings import SchemaSettings


@dataclass
class Platform:
    """A running platform; `api` can be stopped and started again."""

    world: World
    schema: Server
    api: Server

    def consumer(self, loaded: GoldenSet) -> Consumer:
        return Consumer(self.api.url, loaded.tenant)

    def create(self, loaded: GoldenSet) -> Consumer:
        """Register a golden set's tenant."""
        self.world.client.create_tenant(loaded.tenant.cluster_id, loaded.tenant.tenant_id)
        return self.consumer(loaded)

    def put(self, *deliveries: golden.Delivery) -> None:
        for delivery in deliveries:
            self.world.objects.put(delivery.key, delivery.data)


def start_api(world: World, **settings: Any) -> Server:
    port = free_port()
    made = ApiSettings(port=port, node_id=f"api-{port}", meta_url=world.meta.url, **settings)
    return Server(build_api(made, world.objects, CLOCK, end=never_superseded), port)


@contextmanager
def platform(directory: Path, ranges: int, objects: ObjectStore | None = None) -> Iterator[Platform]:
    """A platform that is started, ready, and stopped at the end of the `with` block. `objects` None: in memory."""
    with running(directory, ranges, objects=objects) as world:
        port = free_port()
        settings = SchemaSettings(port=port, meta_url=world.meta.url)
        schema = Server(build_schema(settings, world.objects, HttpClient(), CLOCK, end=never_superseded), port)
        one = Platform(world, schema, start_api(world))
        try:
            http = Consumer(one.api.url, golden.load("large").tenant).client
            eventually(lambda: http.get(f"{one.api.url}/readyz").status_code == 200)
            yield one
        finally:
            one.api.stop()
            schema.stop()
