"""Which sources a process runs: one whose bucket cannot be opened holds no other one back, and begins once it can."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from prometheus_client import CollectorRegistry

from support.source_world import S, World
from tistream.clock import ManualClock
from tistream.errors import InvalidRequest
from tistream.service.observe.metrics import LoopMetrics
from tistream.storage.backends.tenant_keys import TenantKeys
from tistream.wire.bulk.sources import SourceRow, SourceRows
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.meta import RouteTable
from tistream_ingest.metrics import IngestMetrics
from tistream_ingest.source.driver import SourceDriver
from tistream_ingest.source.worker import SourceWorker

OWN = "http://ingest-1"


class Process:
    """An ingest process that must run the sources of two tenants. The buckets of the tenants in `away` cannot be
    opened."""

    def __init__(self) -> None:
        self.away = {"acme"}
        self.tenants = ["acme", "globex"]
        http = HttpClient(transport=httpx.MockTransport(self._answer))
        meta = MetaClient(http, "http://meta")
        self.registry = CollectorRegistry()
        metrics, loops = IngestMetrics(self.registry), LoopMetrics(CollectorRegistry())
        self.driver = SourceDriver(OWN, meta, self._new_worker, metrics, loops, TenantKeys())
        self.driver.follow_routes()

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/routes"):
            table = RouteTable(version=1, tenants=[], services={"ingest": [OWN]})
            return httpx.Response(200, content=table.model_dump_json())
        return httpx.Response(200, content=SourceRows(sources=[*map(_row, self.tenants)]).model_dump_json())

    def _new_worker(self, row: SourceRow) -> SourceWorker:
        if row.tenant_id in self.away:
            raise InvalidRequest(f"there is no directory {row.url}")
        return SourceWorker(row, World().source, ManualClock(), 5_000, 500, lambda: None)

    def states(self) -> dict[str, tuple[str, str | None]]:
        """The state and the reason of each source, by tenant; one that runs may have begun a step already."""
        found = self.driver.statuses(None, None)
        known = ("starting", "running")
        return {
            one.tenant_id: ("runs" if one.info.state in known else one.info.state, one.info.reason) for one in found
        }


def _row(tenant: str) -> SourceRow:
    return SourceRow(
        cluster_id="7",
        tenant_id=tenant,
        source_id="log-1",
        kind="log-backup",
        url=f"file:///mnt/{tenant}",
        snapshot_kind="none",
        snapshot_ts=S,
    )


@pytest.fixture
def process() -> Iterator[Process]:
    made = Process()
    yield made
    made.driver.stop()


def test_a_source_whose_directory_is_missing_holds_no_other_one_back(process: Process) -> None:
    process.driver.follow_sources()
    assert process.driver.not_ready() is None
    there = process.states()
    assert there.pop("acme") == ("waiting", "there is no directory file:///mnt/acme")
    assert list(there) == ["globex"], "the one after it runs"
    assert process.registry.get_sample_value("tistream_ingest_sources") == 2
    (only,) = process.driver.statuses("7", "acme")
    assert only.hold is not None
    assert only.hold.object == "file:///mnt/acme"


def test_a_source_begins_once_its_directory_is_there_and_a_removed_one_is_forgotten(process: Process) -> None:
    process.driver.follow_sources()
    process.away = set()
    process.driver.follow_sources()
    assert process.states()["acme"][1] != "there is no directory file:///mnt/acme", "it runs, and is told as it is"
    process.away, process.tenants = {"initech"}, ["globex", "initech"]
    process.driver.follow_sources()
    assert set(process.states()) == {"globex", "initech"}
    process.tenants = ["globex"]
    process.driver.follow_sources()
    assert set(process.states()) == {"globex"}
