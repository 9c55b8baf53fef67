"""The loop of a territory answers its state machine whatever happens to a call."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from typing import Any, cast

import grpc
import pytest
from prometheus_client import CollectorRegistry

from tistream.clock import ManualClock
from tistream_agent.core import steps
from tistream_agent.core.steps import Command, Event
from tistream_agent.driver import TerritoryDriver
from tistream_agent.inbox import Inbox
from tistream_agent.metrics import AgentMetrics
from tistream_agent.upstream.pd import PdClient
from tistream_agent.upstream.stores import Channels, TlsFiles
from tistream_agent.upstream.streams import StoreStreams


class AtOnce(Executor):
    """Runs a call at once, and keeps its exception to itself, as a pool's thread does."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


class Asking:
    """A machine that asks PD for regions and for timestamps at its first step, and stops some steps later."""

    def __init__(self) -> None:
        self.answers: list[Event] = []
        self._ticks = 0

    def step(self, event: Event, now_ms: int) -> Sequence[Command]:
        if not isinstance(event, steps.Tick):
            self.answers.append(event)
            return []
        self._ticks += 1
        match self._ticks:
            case 1:
                return [steps.ScanRegions(4, b"", b""), steps.TakeTimestamps(5, 1)]
            case 4:
                return [steps.Stop("enough", "the answers have come")]
        return []


class BrokenChannels(Channels):
    """gRPC fails with an error that is none of its own, as for a call on a channel that was closed."""

    def open(self, address: str) -> grpc.Channel:
        raise ValueError("Cannot invoke RPC: Channel closed!")


def test_a_call_that_fails_unexpectedly_is_answered_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    machine, inbox, channels = Asking(), Inbox(), BrokenChannels(TlsFiles())
    pd, pool = PdClient(["pd:2379"], channels), AtOnce()
    clock, metrics, none = ManualClock(0), AgentMetrics(CollectorRegistry()), cast("Any", None)
    streams = StoreStreams(pd, channels, inbox, 7)
    driver = TerritoryDriver(
        machine, pd, streams, none, none, inbox, pool, pool, clock, metrics, lambda _: False, lambda: None
    )
    with caplog.at_level(logging.ERROR):
        stop = driver.run()
    assert stop is not None
    assert machine.answers == [steps.ScanFailed(4), steps.TimestampsFailed(5)]
    assert [record.asked for record in caplog.records[:2]] == ["regions", "timestamps"]  # type: ignore[attr-defined]
    assert "Channel closed!" in caplog.text
