from __future__ import annotations

import logging
import threading

import pytest
from prometheus_client import CollectorRegistry

from support.waiting import PATIENCE_S
from tistream.service.observe.metrics import LoopMetrics
from tistream.service.worker import Loop


def test_body_runs_again_and_again_until_stopped() -> None:
    enough = threading.Event()
    runs: list[int] = []

    def body() -> None:
        runs.append(1)
        if len(runs) == 3:
            enough.set()

    loop = Loop("count", body, interval_ms=1).start()
    assert enough.wait(PATIENCE_S)
    assert loop.stop(PATIENCE_S)
    at_stop = len(runs)
    assert loop.stopping
    assert len(runs) == at_stop


def test_wake_ends_the_wait() -> None:
    ran = threading.Semaphore(0)
    loop = Loop("slow", ran.release, interval_ms=3_600_000).start()
    assert ran.acquire(timeout=PATIENCE_S)
    loop.wake()
    assert ran.acquire(timeout=PATIENCE_S)
    assert loop.stop(PATIENCE_S)


def test_body_says_how_long_to_wait() -> None:
    ran = threading.Semaphore(0)

    def body() -> int:
        ran.release()
        return 1

    loop = Loop("eager", body, interval_ms=3_600_000).start()
    assert all(ran.acquire(timeout=PATIENCE_S) for _ in range(3))
    assert loop.stop(PATIENCE_S)


def test_errors_are_counted_logged_once_per_change_and_survived(caplog: pytest.LogCaptureFixture) -> None:
    troubles = iter(["a", "a", "b"])
    over = threading.Event()

    def body() -> None:
        trouble = next(troubles, None)
        if trouble is not None:
            raise RuntimeError(trouble)
        over.set()

    registry = CollectorRegistry()
    loop = Loop("fragile", body, interval_ms=1, backoff_max_ms=1, metrics=LoopMetrics(registry))
    with caplog.at_level(logging.INFO):
        loop.start()
        assert over.wait(PATIENCE_S)
        assert loop.stop(PATIENCE_S)
    texts = [record.__dict__["error"] for record in caplog.records if record.message == "loop failed"]
    assert texts == ["RuntimeError: a", "RuntimeError: b"]
    assert registry.get_sample_value("tistream_loop_errors_total", {"loop": "fragile"}) == 3.0
    assert loop.last_error is None


def test_stop_before_the_first_run_and_twice() -> None:
    loop = Loop("never", lambda: None, interval_ms=1)
    assert loop.stop(PATIENCE_S)
    assert loop.stop(PATIENCE_S)


def test_stop_tells_when_a_body_hangs() -> None:
    release, inside = threading.Event(), threading.Event()

    def body() -> None:
        inside.set()
        release.wait(PATIENCE_S)

    loop = Loop("stuck", body, interval_ms=1).start()
    assert inside.wait(PATIENCE_S)
    assert not loop.stop(timeout_s=0.05)
    release.set()
    assert loop.stop(PATIENCE_S)
