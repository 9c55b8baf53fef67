"""The simulated network and database fail as real ones do: no hole in a connection, no call where none is made."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from support.sim.network import Network, SimTransport
from support.sim.platform import Faults, SimRepository
from support.sim.scheduler import Process, Scheduler
from support.sim.threads import SimThreads
from tistream import concurrency
from tistream.errors import Unavailable

PARTS = [b"one\n", b"two\n", b"three\n", b"four\n"]


@pytest.fixture
def scheduler(caplog: pytest.LogCaptureFixture) -> Iterator[Scheduler]:
    scheduler = Scheduler(1, 1_800_000_000_000)
    caplog.set_level(logging.WARNING, "httpx")
    with concurrency.installed(SimThreads(scheduler)):
        yield scheduler
        scheduler.end()


def _received(scheduler: Scheduler, cut_after: int, heals_after: int) -> tuple[bytes, str]:
    """What a client has of PARTS, sent a second apart, if the two are cut off from each other between two of them."""
    network = Network(scheduler)
    server, client = Process("server"), Process("client")

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number, part in enumerate(PARTS):
            if number == cut_after:
                network.cut.add(frozenset(("server", "client")))
            if number == heals_after:
                network.cut.clear()
            await send({"type": "http.response.body", "body": part, "more_body": part is not PARTS[-1]})
            concurrency.sleep(1)

    network.listening["server:8080"] = (server, app)  # type: ignore[assignment]
    received: list[bytes] = []
    ends: list[str] = []

    def follow() -> None:
        try:
            with (
                httpx.Client(transport=SimTransport(network, client), timeout=5, trust_env=False) as http,
                http.stream("GET", "http://server:8080/") as answer,
            ):
                received.extend(answer.iter_bytes())
            ends.append("complete")
        except httpx.TransportError as error:
            ends.append(type(error).__name__)

    scheduler.start(client, "follow", follow)
    scheduler.run(lambda: bool(ends), 60_000)
    assert not scheduler.failures, scheduler.failures[0]
    return b"".join(received), ends[0]


def test_a_stream_without_a_cut_arrives_whole(scheduler: Scheduler) -> None:
    assert _received(scheduler, cut_after=9, heals_after=9) == (b"".join(PARTS), "complete")


def test_nothing_of_a_connection_arrives_behind_what_it_has_lost(scheduler: Scheduler) -> None:
    assert _received(scheduler, cut_after=2, heals_after=3) == (b"one\ntwo\n", "ReadTimeout")


class _Inner:
    def part(self, make: Any) -> Any:
        return make()

    def tenants(self) -> list[str]:
        return ["acme"]


class _Book:
    def restores(self) -> list[str]:
        return ["r-1"]


def test_a_silent_database_refuses_the_calls_of_its_parts_but_not_that_they_are_made(scheduler: Scheduler) -> None:
    silent = SimRepository(_Inner(), scheduler, Faults(database_silent=1.0), lambda: None)
    done: list[str] = []

    def ask() -> None:
        book = silent.part(_Book)
        with pytest.raises(Unavailable):
            book.restores()
        with pytest.raises(Unavailable):
            silent.tenants()
        done.append("asked")

    scheduler.start(Process("meta"), "ask", ask)
    scheduler.run(lambda: bool(done), 60_000)
    assert not scheduler.failures, scheduler.failures[0]
    assert done == ["asked"]
