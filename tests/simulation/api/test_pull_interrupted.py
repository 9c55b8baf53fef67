"""An object store that does not answer in the middle of a pull: nothing is lost, and no answer is cut."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import orjson
import pytest

from support.pull_world import StandingProgress, golden_world
from tistream.clock import ManualClock
from tistream.errors import Unavailable
from tistream.read import cursor as cursors
from tistream.read.cursor import Position, Scope
from tistream.read.scan import Budget, Scan
from tistream.read.source_contract import Batch
from tistream_api.encode.ndjson import NdjsonEncoder
from tistream_api.pull.answer import INTERRUPTED_MS, Pull
from tistream_api.request.params import PullParams

BUDGET = Budget(rows=1_000)


class Interrupted:
    """A tenant whose store now and then does not answer."""

    def __init__(self, silent: float) -> None:
        self.world = golden_world("everything", tasks=2, budget=BUDGET)
        self.scope = Scope(self.world.tenant)
        self.silent, self.scans = silent, 0
        self.rng = random.Random(5)

    def scan(self, at: Position, high: int, size: int | None) -> Iterator[Batch]:
        self.scans += 1
        for batch in Scan(self.world.source, self.scope, at, high, BUDGET).batches():
            if self.rng.random() < self.silent:
                raise Unavailable("503 SlowDown")
            yield batch

    def pull(self, start: Position, *, follow: bool) -> Iterator[bytes]:
        progress = Ending(self.world.end_ts)
        params = PullParams(None, None, None, 1_000_000, 0, follow)
        pull = Pull(self.scope, params, start, progress, self.scan, ManualClock(), lambda *_: None, NdjsonEncoder())
        return pull.answer()


class Ending(StandingProgress):
    """The service ends once somebody waits for more than there is."""

    ended = False

    def wait_above(self, ts: int, timeout_ms: int) -> bool:
        self.ended = timeout_ms != INTERRUPTED_MS
        return super().wait_above(ts, timeout_ms)

    def stopping(self) -> bool:
        return self.ended


def events(text: bytes) -> list[bytes]:
    return [line for line in text.splitlines() if b'"cursor"' not in line]


def test_pages_end_early_and_go_on_where_they_ended() -> None:
    interrupted = Interrupted(silent=0.3)
    wanted = events(interrupted.world.pull(start=Position(interrupted.world.snapshot_ts)))
    got: list[bytes] = []
    refused = 0
    at = Position(interrupted.world.snapshot_ts)
    while True:
        try:
            text = b"".join(interrupted.pull(at, follow=False))
        except Unavailable:
            refused += 1
            continue
        got += events(text)
        last = orjson.loads(text.splitlines()[-1])
        at = cursors.decode(interrupted.scope, last["cursor"])
        if last.get("resolved_ts") == str(interrupted.world.end_ts):
            break
    assert got == wanted
    assert refused
    assert interrupted.scans > refused + 5


def test_a_page_of_which_nothing_could_be_read_is_refused() -> None:
    interrupted = Interrupted(silent=1.0)
    with pytest.raises(Unavailable):
        next(interrupted.pull(Position(interrupted.world.snapshot_ts), follow=False))


def test_a_stream_goes_on_behind_what_it_has_sent() -> None:
    interrupted = Interrupted(silent=0.3)
    wanted = events(interrupted.world.pull(start=Position(interrupted.world.snapshot_ts)))
    chunks = _begun(interrupted)
    text = b"".join(chunks)
    assert events(text) == wanted
    assert orjson.loads(text.splitlines()[-1])["resolved_ts"] == str(interrupted.world.end_ts)
    assert interrupted.scans > 5


def _begun(interrupted: Interrupted) -> Iterator[bytes]:
    """A stream that has begun: until then it may be refused."""
    while True:
        stream = interrupted.pull(Position(interrupted.world.snapshot_ts), follow=True)
        try:
            first = next(stream)
        except Unavailable:
            continue
        return itertools.chain([first], stream)
