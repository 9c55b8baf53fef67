"""Whatever happens to a call, a stream or a claim, the state machine is answered and the territory goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import Any, cast

import grpc
import pytest
from prometheus_client import CollectorRegistry

from support.virtual_waits import VirtualWaits
from support.waiting import PATIENCE_S
from tistream.clock import ManualClock
from tistream.concurrency import installed
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.storage.object_store import ObjectInfo
from tistream_agent.core import steps
from tistream_agent.core.steps import Command, Event
from tistream_agent.driver import TerritoryDriver
from tistream_agent.inbox import Inbox
from tistream_agent.metrics import AgentMetrics
from tistream_agent.run import TerritoryRun
from tistream_agent.settings import AgentSettings
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


def test_a_stream_that_fails_unexpectedly_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    inbox, channels = Inbox(), BrokenChannels(TlsFiles())
    streams = StoreStreams(PdClient(["pd:2379"], channels), channels, inbox, 7)
    with caplog.at_level(logging.ERROR):
        streams.open(steps.OpenStream(3, 1))
        ended = inbox.take(PATIENCE_S)
    assert ended == [steps.StreamEnded(3, "unexpected ValueError: Cannot invoke RPC: Channel closed!")]
    assert "Channel closed!" in caplog.text


class FailingObjects(MemoryObjectStore):
    """Object storage whose client fails with an error that is none of ours, a number of times."""

    def __init__(self, times: int, then: Callable[[], None], clock: ManualClock, late: int = 0) -> None:
        super().__init__()
        self._left, self._then, self._clock, self._late = times, then, clock, late

    def list_after(self, prefix: str, after: str = "", delimiter: str = "") -> Iterator[ObjectInfo]:
        if not self._left:
            self._then()
            return super().list_after(prefix, after, delimiter)
        self._left -= 1
        if self._left == self._late:
            self._clock.advance(300_000)
        raise RuntimeError("generator raised StopIteration")


# Attack: a territory fails again and again, runs well for five minutes, and fails once more
def test_a_territory_begins_again_after_unexpected_errors_with_pauses_that_double(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock(0)
    objects = FailingObjects(13, lambda: run.stop(), clock, late=1)  # noqa: PLW0108  # set below
    settings = AgentSettings(pd="127.0.0.1:1", cluster="7", tenant="acme")
    metrics, none, virtual = AgentMetrics(CollectorRegistry()), cast("Any", None), VirtualWaits(clock)
    with installed(virtual), caplog.at_level(logging.WARNING):
        run = TerritoryRun(settings.order, settings, objects, clock, metrics, lambda: "n", none)
        assert run._run() is None, "it was stopped by the last attempt"
    assert virtual.waits[:13] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 1, 2]
    assert "the territory begins again after an unexpected error" in caplog.text
    reasons = [getattr(record, "reason", "") for record in caplog.records]
    assert any("unexpected RuntimeError: generator raised StopIteration" in reason for reason in reasons)
