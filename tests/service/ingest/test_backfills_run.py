"""Backfills in the ingest service itself: two of its processes, a meta server and a sorter over HTTP.

Spark is left out: a unit of work is done in the loop's thread."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry

from support import plain_http
from support.cut_set import commit_timestamps, cut
from support.http_world import CLOCK, Server, World, never_superseded, running
from support.local_chunks import LocalChunks
from support.platform import free_port
from support.sorter_world import InlineRunner
from support.waiting import eventually
from tistream.format.backfill.chunk_plan import decode_done
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.backends.directory import DirectoryObjectStore
from tistream.storage.chunk_reader import read_plan
from tistream.storage.measured import MeasuredObjectStore
from tistream.storage.open import open_existing
from tistream_ingest.app import ProcessEnvironment, build_app
from tistream_ingest.jobs.local import LocalRunner
from tistream_ingest.settings import IngestSettings
from tistream_sorter.metrics import SorterMetrics
from tistream_sorter.node.base_converter import BaseConverter, ListedBackfill


@contextmanager
def ingest(world: World, name: str) -> Iterator[tuple[Server, LocalChunks]]:
    """One process of the service."""
    port, writer = free_port(), LocalChunks(world.objects)
    settings = IngestSettings(
        node_id=name, port=port, meta_url=world.meta.url, sources_ms=50, backfills_ms=50, objects_url="memory:"
    )
    outside = ProcessEnvironment(LocalRunner(open_existing, world.objects), writer, end=never_superseded)
    server = Server(build_app(settings, world.objects, CLOCK, outside), port)
    try:
        yield server, writer
    finally:
        server.stop()


def converter(world: World) -> BaseConverter:
    nonces = random.Random(5)
    objects = MeasuredObjectStore(world.objects)
    metrics = SorterMetrics(CollectorRegistry())
    return BaseConverter(objects, InlineRunner(world.objects), CLOCK, lambda: f"{nonces.getrandbits(64):016x}", metrics)


def ready(url: str) -> bool:
    return plain_http.get(f"{url}/readyz").status_code == 200


def chunks_written(url: str) -> int:
    text = plain_http.get(f"{url}/metrics").text
    (found,) = re.findall(r"^tistream_ingest_base_chunks_total (\S+)$", text, re.MULTILINE)
    return int(float(found))


def test_two_processes_share_a_backfill_and_run_it_to_its_end(tmp_path: Path) -> None:
    made = cut("everything", commit_timestamps("everything")[900])
    tenant: TenantKey = made.set_.tenant
    backup = DirectoryObjectStore(tmp_path / "backup")
    for name, body in made.backup(1).items():
        backup.put(name, body)
    (tmp_path / "meta").mkdir()
    tables = [f"{one.database}.{one.head.name}" for one in made.tables(made.t0)[:4]]
    with running(tmp_path / "meta") as world, ingest(world, "ingest-1") as one, ingest(world, "ingest-2") as two:
        world.objects.put(layout.schema_snap(tenant), made.set_.schema_snap.data)
        world.client.create_tenant(tenant.cluster_id, tenant.tenant_id)
        eventually(lambda: [task.phase for task in world.client.tasks().tasks] == ["running"])
        world.sorter.convert_nothing()  # until it is looked that the backfill waits for that
        for server, _ in (one, two):
            eventually(partial(ready, server.url))
        backfills = f"{world.meta.url}/v1/clusters/{tenant.cluster_id}/tenants/{tenant.tenant_id}/backfills"
        order = {"source": {"kind": "br-full", "url": str(tmp_path / "backup")}, "tables": tables}
        answer = plain_http.post(backfills, json=order)
        assert (answer.status_code, answer.json()) == (202, {"backfill_id": "b1"}), answer.text
        done = layout.backfill_done(tenant, "b1")
        eventually(lambda: any(info.key == done for info in world.objects.list_after(done[:-1])))
        plan = read_plan(world.objects, tenant, "b1")
        assert decode_done(done, world.objects.get(done)) == len(plan.spans)
        assert plain_http.get(f"{backfills}/b1").json()["state"] == "running", "no chunk is a base yet"
        bases = converter(world)
        bases.set_backfills([ListedBackfill(tenant, "b1")])

        def ended() -> bool:
            bases.convert(world.sorter.node.tasks())
            world.sorter.node.wake()
            found = plain_http.get(f"{backfills}/b1").json()
            assert found["state"] in ("running", "finished"), found
            return bool(found["state"] == "finished")

        eventually(ended)
        written = [chunks_written(server.url) for server, _ in (one, two)]
        assert sum(written) == len(plan.spans), "each chunk is written once, whoever did it"
