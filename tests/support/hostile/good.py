"""The other tenant's consumers: what comes when, how far behind its status says it is, and whether anybody refuses."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from support.pull import Consumer, Refused, parse
from support.waiting import PATIENCE_S
from tistream.model.ids import TenantKey
from tistream.model.ts import physical_ms


@dataclass(frozen=True, slots=True)
class Sample:
    """A received row or DDL, or (`what` is "status") an answer of the status call: when it came, and its delay since
    the commit or its duration. Milliseconds."""

    what: str
    at_ms: int
    lag_ms: int


@dataclass(slots=True)
class Seen:
    """All records of the consumers. `refused`: answers other than 200, by status."""

    samples: list[Sample] = field(default_factory=list)
    statuses: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)


class Watch:
    """PullTenant as a stream, PullTable page by page, and status twice a second, each by a thread of its own."""

    def __init__(self, url: str, tenant: TenantKey, token: str, start_ts: int) -> None:
        self.seen = Seen()
        self._url, self._tenant, self._token, self._start_ts = url, tenant, token, start_ts
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(run,), daemon=True)
            for run in (self._stream, self._table, self._status)
        ]

    def start(self) -> Watch:
        """Start the consumers."""
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """Stop the consumers."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()

    def lag_seconds(self) -> float:
        """The lag in the last status answer."""
        told = self.seen.statuses[-1][1]["lag_seconds"] if self.seen.statuses else None
        return 1e9 if told is None else float(told)

    def consumer(self) -> Consumer:
        """A consumer that uses the tenant's own token."""
        headers = {"authorization": f"Bearer {self._token}"}
        return Consumer(self._url, self._tenant, httpx.Client(timeout=PATIENCE_S, trust_env=False, headers=headers))

    def _guarded(self, run: Callable[[], None]) -> None:
        try:
            run()
        except Exception as error:  # told at the end, with all else
            self.seen.problems.append(f"{run.__name__}: {type(error).__name__}: {error}")

    def _note(self, what: str, event: dict[str, Any], at_ms: int) -> None:
        if event["type"] in ("row", "ddl"):
            self.seen.samples.append(Sample(what, at_ms, at_ms - physical_ms(int(event["commit_ts"]))))
            self.seen.events[what] += 1

    def _stream(self) -> None:
        consumer = self.consumer()
        query: dict[str, Any] = {"follow": "true", "start_ts": self._start_ts}
        with consumer.client.stream("GET", consumer.changes_url(), params=query) as answer:
            if answer.status_code != 200:
                self.seen.refused[f"PullTenant {answer.status_code}"] += 1
                raise AssertionError(answer.read())
            for line in answer.iter_lines():
                self._note("PullTenant", parse(line), _now_ms())
                if self._stopping.is_set():
                    return
        raise AssertionError("the stream ended by itself")

    def _table(self) -> None:
        """Some table as long as it is there, then another."""
        consumer, start_ts = self.consumer(), self._start_ts
        while not self._stopping.is_set():
            database, table = _some_table(consumer)
            query: dict[str, Any] = {"start_ts": start_ts}
            while not self._stopping.is_set():
                try:
                    page = consumer.page(database, table, wait_ms=1_000, **query)
                except Refused as refused:
                    self.seen.refused[f"PullTable {refused.status}"] += 1
                    self.seen.problems.append(str(refused))
                    time.sleep(0.5)
                    continue
                for event in page.events:
                    self._note("PullTable", event, _now_ms())
                query, start_ts = {"cursor": page.cursor}, page.resolved_ts or start_ts
                if not page.events and (database, table) not in _tables(consumer):
                    break

    def _status(self) -> None:
        consumer = self.consumer()
        while not self._stopping.wait(0.5):
            began = time.monotonic()
            try:
                told = consumer.status()
            except Refused as refused:
                self.seen.refused[f"status {refused.status}"] += 1
                self.seen.problems.append(str(refused))
                continue
            self.seen.samples.append(Sample("status", _now_ms(), round((time.monotonic() - began) * 1000)))
            self.seen.statuses.append((_now_ms(), told))


def _tables(consumer: Consumer) -> list[tuple[str, str]]:
    names: list[str] = consumer.get("/databases")["databases"]
    return [(name, one["name"]) for name in names for one in consumer.get(f"/databases/{name}/tables")["tables"]]


def _some_table(consumer: Consumer) -> tuple[str, str]:
    """The first by name. Raises ValueError: there is none."""
    return min(_tables(consumer))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
