"""Consumers of a simulated platform: pages of any size, cut answers, cursors used again, a stream that is followed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson

from support.sim.platform import SimPlatform
from tistream.model.ids import TenantKey
from tistream_verify.ddl_effect import names_of
from tistream_verify.record import PullScope
from tistream_verify.validators import Validators

Event = dict[str, Any]
BUSY = (429, 503)
UNKNOWN = 404  # the tenant is not registered yet


def _names(event: Event) -> frozenset[tuple[str, str]]:
    if event["type"] == "row":
        return frozenset({(event["database"].lower(), event["table"].lower())})
    return frozenset(names_of(event))


@dataclass
class Consumer:
    """Reads a scope of one tenant from its beginning; `events` are the rows and ddls that it has taken, once each."""

    platform: SimPlatform
    tenant: TenantKey
    snapshot_ts: int
    rng: random.Random
    name: str
    scope: PullScope = field(default_factory=PullScope)
    events: list[Event] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    resolved_ts: int = 0
    answers: int = 0

    def __post_init__(self) -> None:
        self.validators = Validators(self.snapshot_ts, source=self.name, with_truth=False)
        self._cursors: list[tuple[str, int]] = []  # with how many events lie before each
        self._at: str | None = None

    def _url(self) -> str:
        api = self.rng.choice(self.platform.of("api"))
        database = f"/databases/{self.scope.database}" if self.scope.database is not None else ""
        table = f"/tables/{self.scope.table}" if self.scope.table is not None else ""
        return (
            f"{api.url}/v1/clusters/{self.tenant.cluster_id}/tenants/{self.tenant.tenant_id}{database}{table}/changes"
        )

    def of_scope(self, events: list[Event]) -> list[Event]:
        """What a pull of the scope tells of a tenant's events."""
        return [event for event in events if self.scope.covers(_names(event))]

    def _from(self, cursor: str | None) -> dict[str, str]:
        return {"start_ts": str(self.snapshot_ts)} if cursor is None else {"cursor": cursor}

    # -- pages --------------------------------------------------------------------------------------------------------

    def page(self) -> None:
        """Fiber: page after page, now and then an earlier one once more."""
        scheduler = self.platform.scheduler
        with httpx.Client(transport=self.platform.transport(), timeout=5, trust_env=False) as http:
            while True:
                if self._cursors and self.rng.random() < 0.1:
                    self._again(http)
                params = self._from(self._at) | {
                    "limit": str(self.rng.choice((1, 3, 20, 10_000))),
                    "wait_ms": str(self.rng.choice((0, 1_000, 3_000))),
                }
                lines = self._answer(http, params)
                if lines is None:
                    scheduler.sleep(self.rng.randrange(20_000, 600_000))
                    continue
                self._take(lines)
                if len(lines) == 1:
                    scheduler.sleep(self.rng.randrange(10_000, 400_000))

    def _answer(self, http: httpx.Client, params: dict[str, str]) -> list[Event] | None:
        """The lines of a whole answer; None if there was none."""
        try:
            answer = http.get(self._url(), params=params)
        except httpx.TransportError:
            return None
        self.answers += 1
        if answer.status_code != 200:
            if not self._may_refuse(answer.status_code):
                self.problems.append(f"{self.name}: {params}: {answer.status_code} {answer.text}")
            return None
        return [orjson.loads(line) for line in answer.content.splitlines()]

    def _may_refuse(self, status: int) -> bool:
        return status in BUSY or (status == UNKNOWN and not self._cursors)

    def _take(self, lines: list[Event]) -> None:
        if not lines or lines[-1]["type"] not in ("resolved", "continue"):
            self.problems.append(f"{self.name}: an answer ends with {lines[-1:]}")
            return
        for line in lines:
            self._one(line)

    def _one(self, line: Event) -> None:
        self.validators.see(line)
        if line["type"] in ("row", "ddl"):
            self.events.append(line)
            return
        if line["type"] == "resolved":
            self.resolved_ts = max(self.resolved_ts, int(line["resolved_ts"]))
        self._at = line["cursor"]
        self._cursors.append((line["cursor"], len(self.events)))

    def _again(self, http: httpx.Client) -> None:
        """An earlier cursor gives the same events again."""
        cursor, before = self.rng.choice(self._cursors)
        lines = self._answer(http, self._from(cursor) | {"limit": str(self.rng.choice((2, 50)))})
        if lines is None:
            return
        told = [line for line in lines if line["type"] in ("row", "ddl")]
        known = self.events[before : before + len(told)]
        if told[: len(known)] != known:
            self.problems.append(f"{self.name}: the cursor after event {before} gave {told[:3]}, before: {known[:3]}")

    # -- a stream -----------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Fiber: an endless stream, taken up again at its last cursor whenever it breaks."""
        scheduler = self.platform.scheduler
        with httpx.Client(transport=self.platform.transport(), timeout=3, trust_env=False) as http:
            while True:
                try:
                    with http.stream("GET", self._url(), params=self._from(self._at) | {"follow": "true"}) as answer:
                        self.answers += 1
                        if answer.status_code == 200:
                            self._stream(answer)
                        elif not self._may_refuse(answer.status_code):
                            self.problems.append(f"{self.name}: {answer.status_code} {answer.read()!r}")
                except httpx.TransportError:
                    self.answers += 1
                scheduler.sleep(self.rng.randrange(20_000, 600_000))

    def _stream(self, answer: httpx.Response) -> None:
        """Take what is complete: whatever follows the last cursor comes again with it."""
        since: list[Event] = []
        for text in answer.iter_lines():
            line = orjson.loads(text)
            since.append(line)
            if "cursor" in line:
                for one in since:
                    self._one(one)
                since = []
                if self.rng.random() < 0.02:
                    return  # the consumer breaks it off
