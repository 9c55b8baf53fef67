"""Beats of many workers come at the same time, and none of them fails or is forgotten."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tistream.clock import ManualClock
from tistream.wire.bulk.changefeeds import WorkerBeat
from tistream_meta.feeds.worker_board import WorkerBoard

WORKERS, TENANTS = 4, 300


@pytest.fixture
def eager() -> Iterator[None]:
    """Threads take turns as often as the interpreter lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_beats_that_come_together_are_all_recorded(eager: None) -> None:
    board = WorkerBoard(ManualClock())

    def work(number: int) -> None:
        for at in range(TENANTS):
            busy = [f"7/t{number}-{at}", f"7/shared-{at}"]
            board.sharers(WorkerBeat(node_id=f"w{number}", instance="1", reports=[], busy=busy))

    with ThreadPoolExecutor(WORKERS) as pool:
        for done in [pool.submit(work, number) for number in range(WORKERS)]:
            done.result()
    found = board.sharers(WorkerBeat(node_id="w0", instance="1", reports=[]))
    assert {name: count for name, count in found.items() if "shared" in name} == {
        f"7/shared-{at}": WORKERS for at in range(TENANTS)
    }
    assert len(found) == (WORKERS + 1) * TENANTS
