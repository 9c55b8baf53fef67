"""The states of a source, as its status shows them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.log_bytes import Part
from support.source_world import S, World, put
from tistream.clock import ManualClock
from tistream.errors import CorruptObject, Unavailable
from tistream.model.ts import from_physical_ms, physical_ms
from tistream.wire.bulk.sources import SourceRow
from tistream_ingest.source.worker import STOPPED_MS, SourceWorker

POLL_MS, WAIT_MS = 5_000, 500


def begun(world: World, clock: ManualClock) -> tuple[SourceWorker, list[int]]:
    """A worker, and where it notes its releases."""
    made: list[int] = []
    row = SourceRow(
        cluster_id="7",
        tenant_id="acme",
        source_id="log-1",
        kind="log-backup",
        url="memory:",
        snapshot_kind="none",
        snapshot_ts=S,
    )
    source = replace(world.source, clock=clock)
    return SourceWorker(row, source, clock, POLL_MS, WAIT_MS, lambda: made.append(1)), made


def test_a_source_starts_runs_and_waits_for_a_checkpoint_that_stands() -> None:
    now_ms = 1_800_000_000_000
    high = from_physical_ms(now_ms - 10_000)
    world, clock = World(), ManualClock(now_ms)
    worker, made = begun(world, clock)
    assert worker.status().info.state == "starting"
    world.log.flush(Part([put(1, S + 5)]), name=f"{high:016X}{2:016X}-u{S + 5:016X}.meta", store_id=2)
    world.log.checkpoint(high)
    assert worker.step() == 0, "there may be more at once"
    assert made == [1]
    assert worker.step() == POLL_MS
    status = worker.status()
    assert (status.info.state, status.info.reason) == ("running", None)
    assert (status.info.checkpoint_ts, status.info.released_ts) == (str(high), str(high))
    assert [(one.store_id, one.newest_flush_ms) for one in status.info.stores] == [("2", physical_ms(high))]
    assert worker.lag_ms == 10_000
    clock.advance(600_000)
    assert worker.step() == POLL_MS
    status = worker.status()
    assert status.info.state == "waiting"
    assert status.hold is not None
    assert status.hold.object == "v1/global_checkpoint/"
    assert "has not moved since" in (status.info.reason or "")


def test_a_source_that_waits_for_the_pool_looks_again_soon() -> None:
    world = World(reached=S)
    worker, made = begun(world, ManualClock())
    for high in (S + 10, S + 20):
        world.log.flush(Part([put(1, high - 5)]))
        world.log.checkpoint(high)
        assert worker.step() == (0 if high == S + 10 else WAIT_MS)
    hold = worker.status().hold
    assert hold is not None
    assert (worker.status().info.state, hold.stage) == ("waiting", "sort")
    world.reached = S + 10
    assert worker.step() == 0
    assert made == [1, 1]


def test_a_source_that_stopped_does_nothing_more() -> None:
    world = World()
    worker, _ = begun(world, ManualClock())
    world.log.flush(Part([put(1, S + 5)], changed={"cf": "lock"}))
    world.log.checkpoint(S + 10)
    assert worker.step() == worker.step() == STOPPED_MS
    status = worker.status()
    assert status.info.state == "stopped"
    assert "column family" in (status.info.reason or "")
    assert status.hold is not None
    assert (status.hold.stage, status.hold.object) == ("push", "memory:")


def test_what_does_not_answer_or_is_damaged_is_shown_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    worker, _ = begun(world, ManualClock())
    world.log.objects.put("v1/global_checkpoint/1.ts", b"?")
    with pytest.raises(CorruptObject):
        worker.step()
    hold = worker.status().hold
    assert hold is not None
    assert (hold.stage, hold.object) == ("damaged", "v1/global_checkpoint/1.ts")

    def silent(key: str) -> bytes:
        raise Unavailable("no answer")

    monkeypatch.setattr(world.log.objects, "get", silent)
    with pytest.raises(Unavailable):
        worker.step()
    assert worker.status().info.reason == "no answer"
    monkeypatch.undo()
    world.log.checkpoint(S + 10)
    assert worker.step() == 0


def test_the_reason_of_a_damaged_slice_names_its_object() -> None:
    world = World()
    worker, _ = begun(world, ManualClock())
    world.log.flush(Part([put(1, S + 5)]))
    world.log.checkpoint(S + 10)
    [data] = [info.key for info in world.log.objects.list_after("v1/2")]
    for broken, said in ((b"", "has at most 0 bytes"), (world.log.objects.get(data)[:-1], "ends at")):
        world.log.objects.put(data, broken)
        assert worker.step() == POLL_MS
        status = worker.status()
        assert status.info.state == "waiting"
        assert (status.info.reason or "").startswith(f"{data}: {said}")
        assert status.hold is not None
        assert (status.hold.stage, status.hold.object) == ("damaged", data)
