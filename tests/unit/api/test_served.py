"""The access log, and what it has in common with what is metered."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from tistream.clock import ManualClock
from tistream.service.observe.usage import UsageMeter
from tistream.wire.usage import HOUR_MS, CountedUsage, UsageReport
from tistream_api.admission.metering import MeteringMiddleware, answer_meter_of

PATH = "/v1/clusters/7/tenants/acme/changes"


class Api:
    """A server that answers each request with given pieces: (rows, bytes), and how much time passes before each."""

    def __init__(self, *pieces: tuple[int, int], status: int = 200, pause_ms: int = 0, cut: bool = False) -> None:
        self.clock = ManualClock(HOUR_MS * 3)
        self.reports: list[UsageReport] = []
        self.meter = UsageMeter("api-1", "i1", self.clock, dict, self.reports.append)
        self._pieces, self._status, self._pause_ms, self._cut = pieces, status, pause_ms, cut
        self.app = MeteringMiddleware(self._answer, self.meter, self.clock, access_log=True)

    async def _answer(self, scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self._status})
        for rows, size in self._pieces:
            self.clock.advance(self._pause_ms)
            answer_meter_of(scope).add_rows(rows)
            await send({"type": "http.response.body", "body": b"x" * size, "more_body": True})
        if self._cut:
            raise RuntimeError("the object store is gone")
        await send({"type": "http.response.body"})

    def get(self, path: str = PATH) -> None:
        async def receive() -> Message:
            return {"type": "http.request"}

        async def send(_message: Message) -> None:
            return

        scope = {"type": "http", "method": "GET", "path": path, "headers": []}
        asyncio.run(self.app(scope, receive, send))

    def metered(self) -> list[CountedUsage]:
        self.meter.report()
        return [one for report in self.reports for one in report.counted]


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    names = ("path", "status", "tenant", "bytes", "rows", "ended")
    return [{name: record.__dict__[name] for name in names} for record in caplog.records]


@pytest.fixture(autouse=True)
def _told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tistream_api.served")


def test_a_line_says_what_was_sent_and_that_is_metered(caplog: pytest.LogCaptureFixture) -> None:
    api = Api((3, 100), (0, 20))
    api.get()
    assert lines(caplog) == [
        {"path": PATH, "status": 200, "tenant": "7/acme", "bytes": 120, "rows": 3, "ended": True},
    ]
    (one,) = api.metered()
    assert (one.tenant_id, one.bytes_served, one.rows_served) == ("acme", 120, 3)


def test_an_answer_of_several_hours_has_a_line_for_each(caplog: pytest.LogCaptureFixture) -> None:
    api = Api((1, 10), (2, 20), (4, 40), pause_ms=HOUR_MS // 2 + 1)
    api.get()
    assert [(line["bytes"], line["ended"]) for line in lines(caplog)] == [(10, False), (60, True)]
    assert [(one.hour_ms // HOUR_MS, one.bytes_served) for one in api.metered()] == [(3, 10), (4, 60)]
    assert sum(line["rows"] for line in lines(caplog)) == sum(one.rows_served for one in api.metered()) == 7


def test_a_problem_is_no_service(caplog: pytest.LogCaptureFixture) -> None:
    api = Api((0, 300), status=404)
    api.get()
    assert [(line["status"], line["bytes"]) for line in lines(caplog)] == [(404, 0)]
    assert api.metered() == []


def test_an_answer_that_is_cut_counts_as_far_as_it_was_sent(caplog: pytest.LogCaptureFixture) -> None:
    api = Api((3, 100), cut=True)
    with pytest.raises(RuntimeError):
        api.get()
    assert [line["bytes"] for line in lines(caplog)] == [100]
    assert [one.bytes_served for one in api.metered()] == [100]


@pytest.mark.parametrize(
    ("path", "tenant"),
    [
        ("/v1/clusters/7/tenants/acme", "7/acme"),
        ("/v1/clusters/7/tenants/ac%6De/status", "7/acme"),
        ("/v1/clusters/7/tenants", None),
        ("/v1/clusters/7/tenants/..%2Facme/status", None),
        ("/v1/clusters/7/tenants/%ff/status", None),
        ("/v1/nodes", None),
    ],
)
def test_whose_answer_it_is(caplog: pytest.LogCaptureFixture, path: str, tenant: str | None) -> None:
    api = Api((0, 5))
    api.get(path)
    assert [line["tenant"] for line in lines(caplog)] == [tenant]
    assert len(api.metered()) == (tenant is not None)


def test_probes_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    Api((0, 5)).get("/healthz")
    assert lines(caplog) == []
