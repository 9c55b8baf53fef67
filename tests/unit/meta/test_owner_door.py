"""What only the owner does is behind one door, and the ownership is checked there and under the lock, nowhere else."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from support.meta_database import database_url
from tistream.clock import ManualClock
from tistream.errors import Unavailable
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.clients.client import HttpClient
from tistream.wire.clients.meta_client import MetaClient
from tistream_meta.database.repository import Repository
from tistream_meta.decide.incarnations import Start
from tistream_meta.decide.liveness import Timings
from tistream_meta.decide.options import Options
from tistream_meta.metrics import MetaMetrics
from tistream_meta.owner.owner_calls import OwnerCalls
from tistream_meta.owner.server import MetaServer

OWNER = Path(__file__).parents[3] / "services/meta/tistream_meta/owner"
LEASE_MS = 9_000
START = Start("i", 1)
CALLS: dict[str, Callable[[OwnerCalls], object]] = {
    "write": lambda work: work.write(lambda: None),
    "register": lambda work: work.register("sorter-1", "sorter", "http://sorter-1", START),
    "heartbeat": lambda work: work.heartbeat("sorter-1", START),
    "drain": lambda work: work.drain("sorter-1", True),
    "move": lambda work: work.move(1, "sorter-1"),
    "split": lambda work: work.split(1, None),
    "merge": lambda work: work.merge(1, 2),
    "nodes": lambda work: work.nodes(),
    "tasks": lambda work: work.tasks(),
}


def a_server(path: Path, clock: ManualClock) -> MetaServer:
    return MetaServer(
        Repository.open(database_url(path), "meta-1"),
        MemoryObjectStore(),
        clock,
        MetaMetrics(CollectorRegistry()),
        Options("http://meta-1", 1, LEASE_MS, Timings(4_000, 10_000), 1_000, 100),
        partial(MetaClient, HttpClient()),
    )


def test_the_door_is_shut_before_the_election_and_once_the_lease_has_run_out(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000)
    server = a_server(tmp_path, clock)
    for problem in ("was not opened yet", None, "no meta server is the owner", None):
        if problem is None:
            server.hold_lease()
            assert server.owned().nodes() == []
            clock.advance(LEASE_MS)
            continue
        with pytest.raises(Unavailable, match=problem):
            server.owned()
        with pytest.raises(Unavailable, match=problem):
            server.write(lambda: pytest.fail("it is written"))
        assert (server.ending(), server.retired()) == ([], [])


@pytest.mark.parametrize("call", CALLS)
def test_a_lease_that_runs_out_behind_the_door_is_noticed_under_the_lock(tmp_path: Path, call: str) -> None:
    clock = ManualClock(1_000_000)
    server = a_server(tmp_path, clock)
    server.hold_lease()
    work = server.owned()
    clock.advance(LEASE_MS)  # while the call waits for the lock
    with pytest.raises(Unavailable, match="no meta server is the owner"):
        CALLS[call](work)


def test_the_ownership_is_checked_in_two_places() -> None:
    checks = [
        (path.name, function.name)
        for path in sorted(OWNER.glob("*.py"))
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "_require_owner"
    ]
    assert checks == [("owner_calls.py", "_locked"), ("server.py", "owned")]
