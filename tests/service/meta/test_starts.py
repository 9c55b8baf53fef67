"""Which of several starts of a process bears its name, whatever is repeated, late or lost: one wins, the others end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from support import plain_http
from support.http_world import CLOCK, Server
from support.metas import LEASE_MS, LOST_MS
from support.waiting import PATIENCE_S, eventually
from tistream.errors import Superseded, Unavailable
from tistream.model.ids import TenantKey
from tistream.storage import layout
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.membership import Membership
from tistream.wire.clients.meta_client import MetaClient
from tistream.wire.meta import StartOf
from tistream_meta.app import build_app
from tistream_meta.decide.incarnations import Start, StartStatus, start_status
from tistream_meta.decide.model import Node
from tistream_meta.settings import MetaSettings

PATIENT = {"lease_ms": LEASE_MS, "suspect_ms": LOST_MS // 2, "lost_ms": LOST_MS}


class Meta:
    """A meta server with one tenant of one task, on a port of its own."""

    def __init__(self, directory: Path) -> None:
        self.objects = MemoryObjectStore()
        self.objects.put(layout.schema_snap(TenantKey("7", "acme")), b'{"version":1,"snapshot_ts":42,"databases":[]}')
        self.http = HttpClient(deadline_s=PATIENCE_S)
        self._directory = directory
        self.server = self._start("meta", 0)
        self.client = MetaClient(self.http, self.server.url)

    def _start(self, database: str, port: int) -> Server:
        url = f"sqlite:///{self._directory}/{database}.db"
        settings = MetaSettings(port=port, database_url=url, ranges_per_tenant=1, check_ms=10, **PATIENT)
        server = Server(build_app(settings, self.objects, CLOCK), port)
        eventually(lambda: plain_http.get(f"{server.url}/readyz").status_code == 200)
        return server

    def lose_database(self) -> None:
        self.server.stop()
        self.server = self._start("empty", self.server.port)

    def serve_a_tenant(self) -> None:
        self.client.create_tenant("7", "acme")
        eventually(lambda: self.epochs() not in ([], [0]))

    def epochs(self) -> list[int]:
        return [task.task_epoch for tenant in self.client.routes().tenants for task in tenant.tasks]

    def stop(self) -> None:
        self.server.stop()
        self.http.close()


class Process:
    """What a process of the name `sorter-1` does about its membership."""

    def __init__(self, meta: Meta, instance: str, transport: httpx.BaseTransport | None = None) -> None:
        self.ends = 0
        client = meta.client if transport is None else MetaClient(HttpClient(transport=transport), meta.server.url)
        self.member = Membership(client, "sorter-1", "sorter", f"http://{instance}", instance=instance, end=self._end)

    def _end(self) -> None:
        self.ends += 1

    def beat(self) -> int | None:
        self.member.beat()
        return self.member.registered and self.member.registered.start_epoch


@pytest.fixture
def meta(tmp_path: Path) -> Iterator[Meta]:
    running = Meta(tmp_path)
    yield running
    running.stop()


def test_a_replaced_process_that_wakes_ends_itself_and_epochs_stand_still(meta: Meta) -> None:
    hung, successor = Process(meta, "a"), Process(meta, "b")
    hung.beat()
    meta.serve_a_tenant()
    before = meta.epochs()
    successor.beat()
    after = meta.epochs()
    assert after == [before[0] + 1]
    version = meta.client.routes().version
    for _ in range(3):
        hung.beat()
        successor.beat()
    assert (hung.ends, successor.ends) == (1, 0)
    assert meta.epochs() == after
    assert meta.client.routes().version == version
    assert meta.client.routes().services["sorter"] == ["http://b"]


def test_a_process_that_starts_again_wins(meta: Meta) -> None:
    numbers = [Process(meta, instance).beat() for instance in ("a", "b", "c")]
    assert numbers == [1, 2, 3]
    assert meta.client.routes().services["sorter"] == ["http://c"]


def test_the_same_registration_again_changes_nothing(meta: Meta) -> None:
    Process(meta, "a").beat()
    meta.serve_a_tenant()
    epochs, start = meta.epochs(), StartOf(instance="a", start_epoch=1)
    again = meta.client.register("sorter-1", "sorter", "http://a", start)
    assert again.start_epoch == 1
    assert meta.epochs() == epochs


def test_a_registration_that_comes_late_does_not_replace_a_newer_start(meta: Meta) -> None:
    """Its process may be dead: what it sent had waited in a buffer. Whether it comes again or for the first time."""
    first = StartOf(instance="a", start_epoch=meta.client.new_start("sorter-1").start_epoch)
    under_way = StartOf(instance="b", start_epoch=meta.client.new_start("sorter-1").start_epoch)
    meta.client.register("sorter-1", "sorter", "http://a", first)
    newest = Process(meta, "c")
    assert newest.beat() == 3
    for late in (first, under_way):
        with pytest.raises(Superseded, match="sorter-1"):
            meta.client.register("sorter-1", "sorter", "http://late", late)
    meta.client.new_start("sorter-1")  # one that nobody waits for any more
    newest.beat()
    assert newest.ends == 0
    assert meta.client.routes().services["sorter"] == ["http://c"]


class FirstPutLost(httpx.HTTPTransport):
    """A network in which the first registration does not come through."""

    lost = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "PUT" and not self.lost:
            self.lost = True
            raise httpx.ReadTimeout("lost", request=request)
        return super().handle_request(request)


def test_a_process_that_hung_while_it_registered_is_still_the_older_one(meta: Meta) -> None:
    hung, successor = Process(meta, "a", FirstPutLost()), Process(meta, "b")
    with pytest.raises(Unavailable):
        hung.beat()
    successor.beat()
    hung.beat()
    successor.beat()
    assert (hung.ends, successor.ends) == (1, 0)
    assert meta.client.routes().services["sorter"] == ["http://b"]


def test_a_process_that_meta_has_forgotten_registers_again_in_the_same_beat(meta: Meta) -> None:
    replaced, process, later = Process(meta, "a"), Process(meta, "b"), Process(meta, "c")
    replaced.beat()
    process.beat()
    meta.lose_database()
    assert "sorter" not in meta.client.routes().services
    assert process.beat() == 2
    assert meta.client.routes().services["sorter"] == ["http://b"]
    replaced.beat()
    assert (replaced.ends, process.ends) == (1, 0)  # who was older stays older
    assert later.beat() == 3
    process.beat()
    assert (process.ends, later.ends) == (1, 0)


@pytest.mark.parametrize(
    ("instance", "start_epoch", "found"),
    [
        ("a", 5, StartStatus.REGISTERED),
        ("b", 6, StartStatus.UNKNOWN),
        ("b", 5, StartStatus.SUPERSEDED),  # two databases have given the same number
        ("b", 4, StartStatus.SUPERSEDED),
    ],
)
def test_standing(instance: str, start_epoch: int, found: StartStatus) -> None:
    assert start_status(Node("n", "api", "http://n", 5, "a"), Start(instance, start_epoch)) is found
    assert start_status(None, Start(instance, start_epoch)) is StartStatus.UNKNOWN


def test_a_service_that_was_replaced_ends_in_good_order(meta: Meta, tmp_path: Path) -> None:
    environ = {
        "TISTREAM_DISPATCHER__META_URL": meta.server.url,
        "TISTREAM_DISPATCHER__OBJECTS_URL": f"file://{tmp_path}/objects",
        "TISTREAM_DISPATCHER__NODE_ID": "dispatcher-1",
        "TISTREAM_DISPATCHER__PORT": "0",
    }
    log = tmp_path / "log"
    with log.open("wb") as out:
        service = subprocess.Popen(
            [sys.executable, "-m", "tistream_dispatcher"], env={**os.environ, **environ}, stdout=out, stderr=out
        )
    try:
        eventually(lambda: "dispatcher" in meta.client.routes().services)
        successor = Membership(
            meta.client, "dispatcher-1", "dispatcher", "http://new", instance="new", end=lambda: None
        )
        successor.beat()
        assert service.wait(PATIENCE_S) == 0
    finally:
        service.kill()
        service.wait()
    assert "superseded: this process ends" in log.read_text()
    assert meta.client.routes().services["dispatcher"] == ["http://new"]
