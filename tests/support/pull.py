"""A small consumer: pages, long polls, streams, cursors. It checks what every answer must keep to."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx

from support.waiting import PATIENCE_S, longer_pause_s
from tistream.model.ids import TenantKey

Event = dict[str, Any]
PROBLEM = "application/problem+json"


class Refused(Exception):
    """An answer other than 200: its `status` and its RFC 9457 `problem`. `retry_after` is in seconds, if the answer
    states it."""

    def __init__(self, status: int, problem: dict[str, Any], retry_after: float | None) -> None:
        super().__init__(f"{status} {problem}")
        self.status = status
        self.problem = problem
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Page:
    """One answer. `end` is its last line: `resolved` or `continue`."""

    events: list[Event]
    end: Event

    @property
    def cursor(self) -> str:
        """The cursor that resumes after this page."""
        cursor: str = self.end["cursor"]
        return cursor

    @property
    def resolved_ts(self) -> int | None:
        """The resolved_ts of the page; None if it ends inside a transaction."""
        return int(self.end["resolved_ts"]) if self.end["type"] == "resolved" else None


def no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; a member named twice is an error, not a silent loss."""
    out = dict(pairs)
    assert len(out) == len(pairs), f"a member twice: {[name for name, _ in pairs]}"
    return out


def parse(line: str | bytes) -> Event:
    """One line of NDJSON."""
    event: Event = json.loads(line, object_pairs_hook=no_doubles)
    return event


@dataclass
class Consumer:
    """Pulls one tenant over HTTP."""

    url: str
    tenant: TenantKey
    client: httpx.Client = field(
        default_factory=lambda: httpx.Client(
            timeout=PATIENCE_S, verify=False, trust_env=False, headers={"accept-encoding": "identity"}
        )
    )

    @property
    def base(self) -> str:
        """The tenant's URL."""
        return f"{self.url}/v1/clusters/{self.tenant.cluster_id}/tenants/{self.tenant.tenant_id}"

    def changes_url(self, database: str | None = None, table: str | None = None) -> str:
        """PullTenant, PullDB or PullTable."""
        path = self.base
        if database is not None:
            path += f"/databases/{quote(database, safe='')}"
        if table is not None:
            path += f"/tables/{quote(table, safe='')}"
        return f"{path}/changes"

    def get(self, path: str, **query: Any) -> Any:
        """A JSON document below the tenant. Raises Refused."""
        return self._checked(self.client.get(f"{self.base}{path}", params=query)).json()

    def status(self) -> dict[str, Any]:
        """The tenant's status."""
        answer: dict[str, Any] = self.get("/status")
        return answer

    def page(self, *scope: str | None, **query: Any) -> Page:
        """One pull. `scope` is (), (database,) or (database, table). Raises Refused."""
        answer = self._checked(self.client.get(self.changes_url(*scope), params=query))
        lines = [parse(line) for line in answer.content.splitlines()]
        assert lines, "an answer has a last line"
        assert lines[-1]["type"] in ("resolved", "continue"), lines[-1]
        assert all(line["type"] in ("row", "ddl") for line in lines[:-1]), "one end, at the end"
        if "limit" in query:
            assert len(lines) - 1 <= int(query["limit"])
        return Page(lines[:-1], lines[-1])

    def pages(
        self,
        *scope: str | None,
        until_ts: int,
        query: Mapping[str, Any],
        timeout: float = PATIENCE_S,
        wait_ms: int = 1_000,
    ) -> Iterator[Page]:
        """Follow cursors from `query` (start_ts or cursor, limit …) until a page is resolved at `until_ts`."""
        deadline = time.monotonic() + timeout
        follow = dict(query)
        while True:
            try:
                page = self.page(*scope, wait_ms=wait_ms, **follow)
            except Refused as refused:  # "not yet": the answer says when to come again
                if refused.retry_after is None or time.monotonic() > deadline:
                    raise
                time.sleep(refused.retry_after)
                continue
            yield page
            if page.resolved_ts is not None and page.resolved_ts >= until_ts:
                return
            assert time.monotonic() < deadline, f"{until_ts} not reached in {timeout} s: {page.end} {self.status()}"
            follow = {**{name: follow[name] for name in follow if name == "limit"}, "cursor": page.cursor}

    def pull(
        self, *scope: str | None, until_ts: int, start_ts: int, timeout: float = PATIENCE_S, **query: Any
    ) -> list[Event]:
        """Every event from start_ts to until_ts, the ends of pages included."""
        out: list[Event] = []
        for page in self.pages(*scope, until_ts=until_ts, query={"start_ts": start_ts, **query}, timeout=timeout):
            out += [*page.events, page.end]
        return out

    def follow(self, *scope: str | None, until_ts: int, timeout: float = PATIENCE_S, **query: Any) -> Iterator[Event]:
        """The endless stream, ended by us at `until_ts`. Raises Refused."""
        deadline = time.monotonic() + timeout
        with self.client.stream("GET", self.changes_url(*scope), params={"follow": "true", **query}) as answer:
            if answer.status_code != 200:
                answer.read()
                self._checked(answer)
            for line in answer.iter_lines():
                event = parse(line)
                yield event
                if event["type"] == "resolved" and int(event["resolved_ts"]) >= until_ts:
                    return
                assert time.monotonic() < deadline, f"{until_ts} not reached in {timeout} s: {event}"
        raise AssertionError("the stream ended by itself")

    def wait_for(self, until_ts: int, timeout: float = PATIENCE_S) -> dict[str, Any]:
        """Poll the status until everything through `until_ts` is resolved; the last status."""
        began = time.monotonic()
        while True:
            status = self.status()
            if int(status["resolved_ts"]) >= until_ts:
                return status
            waited_s = time.monotonic() - began
            assert waited_s < timeout, f"{until_ts} not resolved in {timeout} s: {status}"
            time.sleep(max(0.1, longer_pause_s(waited_s)))

    def _checked(self, answer: httpx.Response) -> httpx.Response:
        if answer.status_code == 200:
            return answer
        kind = answer.headers.get("content-type", "")
        assert kind.startswith(PROBLEM), f"{answer.status_code} {kind} {answer.text[:500]}"
        problem = answer.json()
        assert problem["status"] == answer.status_code, problem
        assert {"type", "title", "status", "detail"} <= problem.keys(), problem
        retry_after = answer.headers.get("retry-after")
        assert (retry_after is not None) == (answer.status_code in (429, 503)), answer.headers
        raise Refused(answer.status_code, problem, None if retry_after is None else float(retry_after))
