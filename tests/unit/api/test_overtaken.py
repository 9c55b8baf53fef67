"""Pulls that retention overtakes: what was sent stands, nothing is left out in silence (invariant 19)."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import orjson
import pytest

from support.pull_world import StandingProgress, golden_world
from tistream.clock import ManualClock
from tistream.errors import Gone
from tistream.model.ts import Window
from tistream.read import cursor as cursors
from tistream.read.cursor import Position, Scope
from tistream.read.group_cache import GroupCache
from tistream.read.scan import Budget, Scan
from tistream.read.source import TenantSource
from tistream.read.source_contract import Batch
from tistream_api.encode.ndjson import NdjsonEncoder
from tistream_api.pull.answer import Pull
from tistream_api.request.params import PullParams

BUDGET = Budget(rows=1_000, first_rows=1_000, index_rows=1_000)


class Overtaken:
    """A tenant whose earliest ts the test raises while answers are under way; segments below it are gone."""

    def __init__(self) -> None:
        self.world = world = golden_world("everything", tasks=2, ticks=40, budget=BUDGET)
        self.retained_ts = 0
        self.scope = Scope(world.tenant)
        cache = GroupCache(world.objects, 1)
        self.source = TenantSource(
            threading.RLock(),
            lambda: world.history,
            lambda: world.indexes,
            cache,
            lambda: None,
            lambda: self.retained_ts,
        )

    def raise_to(self, ts: int) -> None:
        self.retained_ts = ts
        for index in self.world.indexes:
            kept = []
            for segment in index.overlapping(Window(self.world.snapshot_ts, self.world.end_ts)):
                if segment.commit_ts_max > ts:
                    kept.append(segment)
                else:
                    self.world.objects.delete(segment.key)
            index.update(tuple(kept))

    def pull(self, start: Position, *, follow: bool = False) -> Iterator[bytes]:
        def scan(at: Position, high: int, size: int | None) -> Iterator[Batch]:
            return Scan(self.source, self.scope, at, high, BUDGET).batches()

        params = PullParams(None, None, None, 1_000_000, 0, follow)
        progress = StandingProgress(self.world.end_ts)
        return Pull(self.scope, params, start, progress, scan, ManualClock(), lambda *_: None, NdjsonEncoder()).answer()


@pytest.fixture
def overtaken() -> Overtaken:
    return Overtaken()


def events(text: bytes) -> list[bytes]:
    return [line for line in text.splitlines() if b'"cursor"' not in line]


@pytest.mark.parametrize("follow", [False, True])
def test_an_answer_that_is_overtaken_ends_where_its_last_line_says(overtaken: Overtaken, follow: bool) -> None:
    start = Position(overtaken.world.snapshot_ts)
    wanted = events(overtaken.world.pull(start=start))
    answer = overtaken.pull(start, follow=follow)
    got = next(answer)
    overtaken.raise_to((overtaken.world.snapshot_ts + overtaken.world.end_ts) // 2)
    got += b"".join(answer)
    said = events(got)
    assert 0 < len(said) < len(wanted)
    assert said == wanted[: len(said)], "nothing is left out"
    at = cursors.decode(overtaken.scope, orjson.loads(got.splitlines()[-1])["cursor"])
    assert at.low_ts < overtaken.retained_ts
    with pytest.raises(Gone) as told:
        next(overtaken.pull(at, follow=follow))
    assert told.value.extra["earliest_ts"] == str(overtaken.retained_ts)


def test_what_is_kept_is_answered_as_before(overtaken: Overtaken) -> None:
    start = Position((overtaken.world.snapshot_ts + overtaken.world.end_ts) // 2)
    wanted = overtaken.world.pull(start=start)
    overtaken.raise_to(start.commit_ts)
    assert b"".join(overtaken.pull(start)) == wanted
