"""Replays the changes of a RawKV tenant into another cluster: at least once, in order for each key.

Changes are pulled page by page, and written by several workers. Each key always has the same worker. The cursor is
stored after the target has accepted all changes before it. After a crash the changes since then are written again.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

import orjson

from tistream.clock import Clock
from tistream.errors import Gone, RetryableError, Unavailable
from tistream.model import raw_row
from tistream.model.ts import physical_ms
from tistream_agent.replay.batches import Batch, RawWrite, batches, shares
from tistream_agent.replay.state_file import State

FLUSH_WRITES, FLUSH_BYTES = 65_536, 16 << 20  # held at once
PAUSE_S, PAUSE_MAX_S = 0.05, 5.0
_PAGE = {"limit": "10000", "wait_ms": "1000"}


class Writer(Protocol):
    """The interface of the target: raw_writer.RawWriter implements it."""

    def write(self, batch: Batch) -> None: ...


@dataclass(slots=True)
class Counts:
    """Counts of what a replay has written since it started."""

    puts: int = 0
    deletes: int = 0
    pages: int = 0


@dataclass(slots=True)
class Replayer:
    """Reads the changes of a RawKV tenant and writes them into the target.

    Args:
        pages: requests one page of PullRaw with these parameters, and yields its lines. Raises TiStreamError.
        position: the cursor at which the replay begins; None: at `start_ts`, or at the earliest ts that is kept.
        save: stores a position, durably.
        wait: pauses for seconds; returns True once the process must end.
        say: called with the reason why a page is requested again.
    """

    source: str
    target_cluster_id: int
    pages: Callable[[dict[str, str]], Iterator[bytes]]
    writer: Writer
    position: State | None
    save: Callable[[State], None]
    workers: Executor
    concurrency: int
    clock: Clock
    wait: Callable[[float], bool]
    say: Callable[[str], None]
    start_ts: str = "0"
    counts: Counts = field(default_factory=Counts)

    def run(self, until_ts: int | None = None) -> None:
        """Replay until the process must end, or until everything up to `until_ts` is in the target. Raises the errors
        of `pages` and of the writer that a retry does not help."""
        pause_s = PAUSE_S
        while not self.wait(0):
            if until_ts is not None and self.resolved_ts >= until_ts:
                return
            try:
                self._page()
                pause_s = PAUSE_S
            except Gone as error:
                earliest = error.extra.get("earliest_ts")
                if self.position is not None or self.start_ts != "0" or earliest is None:
                    raise
                self.start_ts = str(earliest)  # no start was requested: begin at the earliest ts that is kept
            except RetryableError as error:
                self.say(str(error))
                self.wait(pause_s)
                pause_s = min(2 * pause_s, PAUSE_MAX_S)

    @property
    def resolved_ts(self) -> int:
        """The ts up to which all changes are in the target; 0 before the first page."""
        return 0 if self.position is None else int(self.position.resolved_ts)

    @property
    def lag_ms(self) -> int:
        """The age of `resolved_ts`, in milliseconds."""
        return max(0, self.clock.now_ms() - physical_ms(self.resolved_ts))

    def _page(self) -> None:
        begin = {"start_ts": self.start_ts} if self.position is None else {"cursor": self.position.cursor}
        held: list[RawWrite] = []
        size = 0
        end: dict[str, Any] | None = None
        for line in self.pages({**_PAGE, **begin}):
            event = orjson.loads(line)
            if event["type"] != "raw":
                end = event
                continue
            held.append(raw_write(event))
            size += held[-1].size
            if len(held) >= FLUSH_WRITES or size >= FLUSH_BYTES:
                self._flush(held)
                held, size = [], 0
        if end is None:
            raise Unavailable("the answer of PullRaw ended before its last line")
        self._flush(held)
        self.counts.pages += 1
        resolved_ts = end.get("resolved_ts") or str(self.resolved_ts)
        state = State(
            source=self.source,
            target_cluster_id=str(self.target_cluster_id),
            cursor=end["cursor"],
            resolved_ts=resolved_ts,
        )
        if state != self.position:
            self.save(state)
            self.position = state

    def _flush(self, writes: Sequence[RawWrite]) -> None:
        """Write these changes. Returns once the target has accepted all of them."""
        now_s = self.clock.now_ms() // 1_000
        mine = [list(batches(share, now_s)) for share in shares(writes, self.concurrency) if share]
        done = [self.workers.submit(self._written, found) for found in mine]
        for one in done:
            one.result()
        for batch in (batch for found in mine for batch in found):
            if batch.puts:
                self.counts.puts += len(batch)
            else:
                self.counts.deletes += len(batch)

    def _written(self, found: Iterable[Batch]) -> None:
        for batch in found:
            self.writer.write(batch)


def raw_write(event: dict[str, Any]) -> RawWrite:
    """Convert a parsed line of PullRaw to a change."""
    key = raw_row.prefix(int(event["keyspace"])) + b64decode(event["key"])
    if event["op"] == "delete":
        return RawWrite(key, None)
    expire = event["expire_at"]
    expire_ts = 0 if expire is None else max(1, int(datetime.fromisoformat(expire).timestamp()))
    return RawWrite(key, b64decode(event["value"]), expire_ts)
