"""The consumers of `tistream verify`, each in a thread. One consumer reads a stream, whose events are checked by the
validators and recorded. The others pull the same tenant with other calls, and must receive the recorded events."""

from __future__ import annotations

import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import orjson

from tistream.clock import Clock
from tistream.model.ts import physical_ms
from tistream_client.cli.api_client import ApiClient, changes_path
from tistream_client.cli.errors import LATER
from tistream_client.core.errors import ApiError
from tistream_verify.lag import Delays
from tistream_verify.record import PullScope, StreamRecord, difference, line_hash
from tistream_verify.resumed import ResumedStream
from tistream_verify.validators import Validators
from tistream_verify.violation import Findings, Rule

_RETRY_SECONDS = 0.3
_LATE_MS = 5_000
_PAGE_PAUSE_SECONDS = 0.05  # a pager only has to keep up with the stream, and should not add much load
_LIMITS = (1, 2, 7, 100, 1_000, 10_000, 10_000)
_CURSORS_MAX = 5_000
_WINDOW_EVENTS = 20_000


@dataclass(slots=True)
class Watched:
    """The state that all consumers of a run share. `lock` guards it."""

    cluster: str
    tenant: str
    start_ts: int
    validators: Validators
    record: StreamRecord
    stop: threading.Event
    lock: threading.Lock = field(default_factory=threading.Lock)
    delays: Delays = field(default_factory=Delays)
    truth_ts: int = 0
    truth_lines: int = 0

    def path(self, scope: PullScope) -> str:
        """The URL path of a pull with this scope."""
        return changes_path(self.cluster, self.tenant, scope.database, scope.table)

    def wait_resolved(self, ts: int, end: int = 0) -> bool:
        """Wait until the stream's record has all events up to `ts`, and at least `end` events. Returns False if the run
        stops before."""
        while not self.stop.is_set():
            with self.lock:
                if self.record.resolved_ts >= ts and self.record.end >= end:
                    return True
            self.stop.wait(0.05)
        return False


@dataclass(slots=True)
class Attempts:
    """Makes the calls of one consumer. Retryable errors are counted; every other error is recorded in `found` as a
    violation. `stop` ends the waits after errors."""

    found: Findings
    stop: threading.Event
    refused: int = 0  # retryable errors: 503, refused connections, truncated answers

    def lines(self, client: ApiClient, path: str, query: Mapping[str, str]) -> Iterator[bytes]:
        """Yield the lines of one answer, up to its end or an error. Raises no error: one that is not retryable is
        recorded as a violation. After an error, waits up to a second before the iteration ends."""
        try:
            yield from client.lines(path, query)
        except LATER:
            self.refused += 1
            self.stop.wait(_RETRY_SECONDS)
        except ApiError as error:
            self.found.add(Rule.REFUSED, f"{path} {dict(query)}: {error.status} {error.detail}")
            self.stop.wait(1.0)


class StreamReader:
    """Pulls PullTenant with follow=true. At random times, every `cut_seconds` on average, it closes the connection and
    resumes from the last cursor, but not while the stream is late."""

    def __init__(self, client: ApiClient, watched: Watched, clock: Clock, rng: random.Random, cut_seconds: float):
        self.attempts = Attempts(watched.validators.found, watched.stop)
        self.stream = ResumedStream(watched.validators, watched.record)
        self._client, self._watched, self._clock, self._rng = client, watched, clock, rng
        self._cut_seconds = cut_seconds

    def run(self) -> None:
        """Read until `stop` is set."""
        watched = self._watched
        while not watched.stop.is_set():
            self._answer()

    def _answer(self) -> None:
        cursor = self.stream.cursor
        query = {"start_ts": str(self._watched.start_ts)} if cursor is None else {"cursor": cursor}
        cut_ms = self._clock.monotonic_ms() + int(self._rng.expovariate(1 / self._cut_seconds) * 1000)
        self.stream.begin()
        lines = self.attempts.lines(self._client, self._watched.path(PullScope()), {**query, "follow": "true"})
        for line in lines:
            now_ms = self._clock.now_ms()
            with self._watched.lock:
                event = self.stream.see(line)
            if event is not None and event["type"] != "resolved":
                self._watched.delays.add(now_ms - physical_ms(int(event["commit_ts"])))
            if self._watched.stop.is_set() or (self._clock.monotonic_ms() >= cut_ms and not self._is_late(now_ms)):
                return

    def _is_late(self, now_ms: int) -> bool:
        """Whether the stream is behind. Then its connection must not be cut, because it would read all events since the
        last cursor again, and might never catch up."""
        return now_ms - physical_ms(self._watched.record.resolved_ts) > _LATE_MS


@dataclass(frozen=True, slots=True)
class Page:
    """One complete answer of a pull: the hashes of its events, and its last line."""

    hashes: list[int]
    end: Mapping[str, str]


class PageReader(ABC):
    """The base class of consumers that read complete answers and compare them with the record."""

    name = "pager"

    def __init__(self, client: ApiClient, watched: Watched, rng: random.Random) -> None:
        self.found = Findings(self.name)
        self.attempts = Attempts(self.found, watched.stop)
        self.pages = self.events = self.rereads = 0
        self._client, self._watched, self._rng = client, watched, rng

    @abstractmethod
    def run(self) -> None:
        """Read until `stop` is set."""

    def page(self, scope: PullScope, query: Mapping[str, str]) -> Page | None:
        """Read one answer. Returns None if no answer came, or if it was not complete."""
        failed, known = self.attempts.refused, self.found.counts.total()
        lines = list(self.attempts.lines(self._client, self._watched.path(scope), query))
        if self.attempts.refused > failed or self.found.counts.total() > known:
            return None
        end = orjson.loads(lines[-1]) if lines else {}
        if end.get("type") not in ("resolved", "continue"):
            self.found.add(Rule.CUT, f"{scope} {dict(query)}: the last line of {len(lines)} is not its end", end)
            return None
        self.pages += 1
        self.events += len(lines) - 1
        return Page([line_hash(line) for line in lines[:-1]], end)

    def limit(self) -> str:
        """Draw a random value for the parameter `limit`."""
        return str(self._rng.choice(_LIMITS))


class TenantPager(PageReader):
    """Pulls PullTenant in pages of random size. Some pages are read twice, from an earlier cursor."""

    def __init__(self, client: ApiClient, watched: Watched, rng: random.Random) -> None:
        super().__init__(client, watched, rng)
        self._cursors: list[tuple[str, int]] = []

    def run(self) -> None:
        """Read until `stop` is set."""
        query, position = {"start_ts": str(self._watched.start_ts)}, self._watched.record.first
        while not self._watched.stop.is_set():
            if self._cursors and self._rng.random() < 0.3:
                self.rereads += 1
                self._step({"cursor": (old := self._rng.choice(self._cursors))[0]}, old[1])
                continue
            step = self._step(query, position)
            if step is None:
                continue
            query, position = {"cursor": step[0]}, step[1]
            if len(self._cursors) >= _CURSORS_MAX:
                self._cursors[self._rng.randrange(_CURSORS_MAX)] = step
            else:
                self._cursors.append(step)

    def _step(self, query: Mapping[str, str], position: int) -> tuple[str, int] | None:
        """Read and compare one page that begins at the record's `position`. Returns the next cursor and its position,
        or None if there was no page."""
        wait_ms = str(self._rng.choice((0, 500, 2_000)))
        page = self.page(PullScope(), {**query, "limit": self.limit(), "wait_ms": wait_ms})
        if page is None:
            return None
        end = position + len(page.hashes)
        resolved_ts = int(page.end.get("resolved_ts", 0))
        if not self._watched.wait_resolved(resolved_ts, end):
            return None
        with self._watched.lock:
            record = self._watched.record
            if position >= record.first:
                expected = [record.hash(at) for at in range(position, end)]
                behind = record.after(resolved_ts) if resolved_ts else end
                if differs := difference(expected, page.hashes):
                    self.found.add(Rule.REREAD, f"{dict(query)}, at event {position} of the stream: {differs}")
                elif behind > end:
                    self.found.add(
                        Rule.REREAD, f"{dict(query)}: resolved {resolved_ts}, but {behind - end} events are missing"
                    )
        self._watched.stop.wait(_PAGE_PAUSE_SECONDS if page.hashes else 0.2)
        return page.end["cursor"], end


class ScopeReader(PageReader):
    """Pulls PullTable, PullDB or PullTenant with random names, over random windows. An answer must equal those events
    of the record that concern the names."""

    name = "scopes"

    def run(self) -> None:
        """Read until `stop` is set."""
        while not self._watched.stop.is_set():
            with self._watched.lock:
                stretch = self._choose()
            if stretch is not None:
                self._read(*stretch)
            self._watched.stop.wait(0.5)

    def _choose(self) -> tuple[PullScope, int, int] | None:
        record = self._watched.record
        done = record.after(record.resolved_ts)
        low = self._rng.randint(max(record.first, done - 10 * _WINDOW_EVENTS), max(record.first, done))
        high = min(done, low + self._rng.randint(1, _WINDOW_EVENTS))
        names = record.names_between(low, high)
        if not names:
            return None
        database, table = self._rng.choice(names)
        scope = self._rng.choice(
            (PullScope(database, table), PullScope(database, table), PullScope(database), PullScope())
        )
        low_ts = self._watched.start_ts if low == record.first else record.commit_ts(low - 1)
        high_ts = record.commit_ts(high - 1)
        return (scope, low_ts, high_ts) if record.whole_since(low_ts) and low_ts < high_ts else None

    def _read(self, scope: PullScope, low_ts: int, high_ts: int) -> None:
        query, got = {"start_ts": str(low_ts), "end_ts": str(high_ts)}, list[int]()
        limit = str(max(int(self.limit()), 100))
        while not self._watched.stop.is_set():
            known = self.found.counts.total()
            page = self.page(scope, {**query, "limit": limit})
            if self.found.counts.total() > known:
                return
            if page is None:
                continue
            got += page.hashes
            query = {"cursor": page.end["cursor"], "end_ts": str(high_ts)}
            if int(page.end.get("resolved_ts", 0)) >= high_ts:
                break
        else:
            return
        self.rereads += 1
        with self._watched.lock:
            record = self._watched.record
            if record.whole_since(low_ts) and (differs := difference(record.hashes(scope, low_ts, high_ts), got)):
                self.found.add(Rule.SCOPE, f"{scope} over ({low_ts}, {high_ts}]: {differs}")
