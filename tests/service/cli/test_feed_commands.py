"""What commands of changefeeds ask an API server for, and what they say about its answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from typer.testing import CliRunner

from tistream_cli.app import app
from tistream_cli.changefeed.changes import SkippedEvent, other_cause
from tistream_client.cli.errors import AGAIN, FIX, CliError

FEEDS = "/v1/clusters/7/tenants/acme/changefeeds"
NEWEST = 470597720583962624
FEED = {"changefeed_id": "f", "state": "running", "error": None, "stopped": [], "skips": [1], "checkpoint_ts": "8"}
CAUSE = "DDL job 91 at commit_ts 77 (DROP TABLE orders): refused"
FAILED = FEED | {"state": "failed", "error": CAUSE}
LATER = {"type": "tistream:unavailable", "detail": "the feed has written nothing yet"}
OLD = {"type": "tistream:gone", "detail": "too old", "earliest_ts": str(NEWEST)}


class Server(ThreadingHTTPServer):
    """Answers with the status and document of `answers`, by method and path. `bodies`: those of requests, by path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, tuple[int, dict[str, Any]]] = {}
        self.bodies: dict[str, dict[str, Any]] = {}

    def run(self, *words: str) -> CliError | str:
        """The output of `tistream changefeed …`, stderr first; or its error."""
        of = ("--cluster", "7", "--tenant", "acme", "--url", f"http://127.0.0.1:{self.server_address[1]}")
        found = CliRunner().invoke(app, ["changefeed", *words, "-c", "f", *of])
        return found.exception if isinstance(found.exception, CliError) else found.stderr + found.stdout


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def _answer(self) -> None:
        path = self.path.partition("?")[0]
        if self.command in ("POST", "PUT"):
            self.server.bodies[path] = json.loads(self.rfile.read(int(self.headers["content-length"])))
        status, document = self.server.answers[f"{self.command} {path}"]
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = _answer

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as found:
        thread = Thread(target=found.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


CREATE = ("create", "--sink-uri", "kafka://b:9092/t", "--start-ts")


def test_a_command_line_of_ticdc_is_taken_with_zero_for_no_end(server: Server) -> None:
    feed = FEED | {"revision": 2}
    server.answers = {
        f"POST {FEEDS}": (201, {**feed, "start_ts": str(NEWEST), "warnings": []}),
        f"PUT {FEEDS}/f": (200, feed),
    }
    assert "begins after" in str(server.run(*CREATE, str(NEWEST), "--target-ts", "0", "--no-confirm"))
    assert "end_ts" not in server.bodies[FEEDS]
    assert "has revision 2" in str(server.run("update", "--target-ts", "0", "--no-confirm"))
    assert server.bodies[f"{FEEDS}/f"] == {"end_ts": None}, "it does not end"


def test_a_feed_that_begins_now_begins_at_the_newest_ts_that_can_be_read(server: Server) -> None:
    server.answers = {
        "GET /v1/clusters/7/tenants/acme/databases": (200, {"ts": str(NEWEST), "databases": []}),
        f"POST {FEEDS}": (201, {**FEED, "start_ts": str(NEWEST), "warnings": []}),
    }
    assert f"begins after {NEWEST}" in str(server.run(*CREATE, "now"))
    assert server.bodies[FEEDS]["start_ts"] == str(NEWEST)
    server.run(*CREATE, "2026-11-20T14:03:00Z")
    assert server.bodies[FEEDS]["start_ts"] == str(1_795_183_380_000 << 18)


def test_a_feed_goes_on_now_at_what_the_tenant_has_resolved(server: Server) -> None:
    server.answers = {
        f"GET {FEEDS}/f/lag": (200, {"resolved_ts": str(NEWEST)}),
        f"POST {FEEDS}/f/resume": (200, FEED),
    }
    server.run("resume", "--checkpoint-ts", "now")
    assert server.bodies[f"{FEEDS}/f/resume"] == {"checkpoint_ts": str(NEWEST)}
    server.run("resume")
    assert server.bodies[f"{FEEDS}/f/resume"] == {}


def test_a_time_before_retention_is_answered_with_the_option_of_the_command(server: Server) -> None:
    server.answers = {f"POST {FEEDS}": (410, OLD), f"POST {FEEDS}/f/resume": (410, OLD)}
    assert f"`changefeed create --start-ts` {NEWEST} (2026" in str(server.run(*CREATE, "2020-01-01"))
    assert f"continue with --checkpoint-ts {NEWEST} (2026" in str(server.run("resume", "--checkpoint-ts", "2020-01-01"))


@pytest.mark.parametrize(("feed", "status", "text"), [(FEED, AGAIN, "the same command again"), (FAILED, FIX, CAUSE)])
def test_a_repeat_is_advised_only_if_the_feed_has_not_failed(
    server: Server, feed: dict[str, Any], status: int, text: str
) -> None:
    server.answers = {f"POST {FEEDS}/f/verify": (503, LATER), f"GET {FEEDS}/f": (200, feed)}
    error = server.run("verify")
    assert isinstance(error, CliError)
    assert (error.status, "has written nothing yet" in str(error), text in str(error)) == (status, True, True)
    assert ("command again" in str(error)) == (status == AGAIN)


def test_a_skip_of_another_event_than_the_feed_waits_for_is_warned_of(server: Server) -> None:
    server.answers = {f"POST {FEEDS}/f/skip": (200, FAILED)}
    words = ("skip", "--table", "shop.orders", "--reason", "x", "--commit-ts", "77", "--ddl-job")
    assert f"waited for: {CAUSE}\nchangefeed f has 1 event" in str(server.run(*words, "999"))
    assert str(server.run(*words, "91")).startswith("changefeed f has 1 event")


ROW = FEED | {"state": "failed", "error": "table shop.orders, commit_ts 77, key 7480: the value has 9 bytes"}
TABLE = {"database": "shop", "table": "orders", "reason": CAUSE}


@pytest.mark.parametrize(
    ("feed", "skip", "other"),
    [
        (ROW, SkippedEvent(77, "shop.orders", "7480", None, "x"), False),
        (ROW, SkippedEvent(77, "shop.orders", "AB", None, "x"), True),
        (ROW, SkippedEvent(78, "shop.orders", "7480", None, "x"), True),
        (ROW, SkippedEvent(77, "shop.orders", None, 91, "x"), True),
        (FAILED, SkippedEvent(77, "shop.orders", "7480", None, "x"), True),
        (FEED | {"state": "failed", "error": "no such topic"}, SkippedEvent(1, "shop.orders", "74", None, "x"), False),
        (FEED | {"stopped": [TABLE]}, SkippedEvent(78, "shop.orders", None, 91, "x"), True),
        (FEED | {"stopped": [TABLE | {"table": ""}]}, SkippedEvent(78, "shop.orders", None, 91, "x"), True),
        (FEED | {"stopped": [TABLE]}, SkippedEvent(78, "shop.other", None, 91, "x"), False),
        (FEED, SkippedEvent(78, "shop.orders", None, 91, "x"), False),
    ],
)
def test_the_event_that_is_waited_for_is_known_by_its_names(
    feed: dict[str, Any], skip: SkippedEvent, other: bool
) -> None:
    assert (other_cause(feed, skip) is not None) == other


def test_a_directory_has_no_partitions(server: Server) -> None:
    tables = [
        {"database": "shop", "table": name, "topic": topic, "partition": partition, "columns": ["id", "v"]}
        for name, topic, partition in (("a", "t", "table"), ("b", "file:///out/b", ""), ("c", "", ""))
    ]
    found = {"tables": tables, "count": 3, "left_out": [], "warnings": [], "stopped": []}
    server.answers = {f"GET {FEEDS}/f/tables": (200, found)}
    assert str(server.run("tables")).splitlines() == [
        "table shop.a: topic t, partition table, id, v",
        "table shop.b: file:///out/b, id, v",
        "table shop.c: id, v",
    ]
