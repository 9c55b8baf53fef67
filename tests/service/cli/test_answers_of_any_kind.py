"""What commands do with answers of a server that stops early, is older, or is no TiStream API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest
from typer.testing import CliRunner

from tistream_cli.app import app
from tistream_client.cli.api_client import ApiClient
from tistream_client.cli.pull.format import PullRequest
from tistream_client.cli.pull.pull import pull


class Text(NamedTuple):
    """An answer, of which the last `missing` bytes do not arrive."""

    status: int
    kind: str
    body: str
    missing: int = 0


class Canned(ThreadingHTTPServer):
    """Gives `answers` in turn, and the last one again and again. `asked`: the URLs."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[Text] = []
        self.asked: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def parameters(self) -> list[dict[str, str]]:
        return [{name: one for name, (one,) in parse_qs(urlsplit(url).query).items()} for url in self.asked]


class _Handler(BaseHTTPRequestHandler):
    server: Canned

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        answers = self.server.answers
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        body = answer.body.encode()
        self.send_response(answer.status)
        self.send_header("content-type", answer.kind)
        self.send_header("content-length", str(len(body) + answer.missing))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def canned() -> Iterator[Canned]:
    with Canned() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def lines(*found: dict[str, object], missing: int = 0) -> Text:
    body = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in found)
    return Text(200, "application/x-ndjson", body, missing)


BEGIN, END = ({"type": f"snapshot_{name}", "snapshot_ts": "7"} for name in ("begin", "end"))
READ = [{"type": "row", "op": "read", "n": number} for number in range(3)]
RESOLVED = {"type": "resolved", "resolved_ts": "7", "cursor": "c7"}
LAST = {"type": "resolved", "resolved_ts": "9", "cursor": "c9"}


@pytest.mark.parametrize("rows", [READ, []])
def test_a_snapshot_that_is_cut_at_its_end_is_there_once(rows: list[dict[str, object]], canned: Canned) -> None:
    canned.answers = [lines(BEGIN, *rows, END, missing=9), lines(BEGIN, *rows, END, RESOLVED), lines(LAST)]
    told = []
    refused = Text(503, "application/problem+json", json.dumps({"detail": "busy", "status": 503}))
    canned.answers.insert(1, refused)
    request = PullRequest("7", "a", follow=True, snapshot="now")
    for line, _ in pull(ApiClient(canned.url), request, sleep=lambda _: None):
        told.append(json.loads(line))
        if told[-1] == LAST:
            break
    assert told == [BEGIN, *rows, END, RESOLVED, LAST]
    assert [one.get("snapshot") for one in canned.parameters()] == ["now", "7", "7", None]
    assert canned.parameters()[-1]["cursor"] == "c7"


@pytest.mark.parametrize(
    ("start", "end"),
    [("2026-11-21T12:00:00+02:00", "2026-11-21T11:00:00Z"), ("2026-11-21T10:00", "2026-11-21T11:00")],
)
def test_hours_of_usage_are_in_the_zone_that_is_given(start: str, end: str, canned: Canned) -> None:
    canned.answers = [Text(200, "application/json", '{"hours": [], "total": {}}')]
    words = ["--cluster", "7", "--tenant", "acme", "--from", start, "--to", end, "--json", "--url", canned.url]
    assert CliRunner().invoke(app, ["tenant", "usage", *words]).exit_code == 0
    assert canned.parameters() == [{"from": "1795255200000", "to": "1795258800000"}]
