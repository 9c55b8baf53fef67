"""`tistream pull --format arrow|parquet` against real answers: every event, once, and nothing of a cut page."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson
import pyarrow.parquet as pq
import pytest

from support.arrow_answer import arrow_batches, events_of
from support.pull_world import World, golden_world
from tistream.cli.client import ApiClient
from tistream.cli.errors import CliError
from tistream.cli.pull import PullRequest
from tistream.cli.pull_formats import ToFiles, ToStream, pull_pages
from tistream_api.cursor import Position, Scope, decode

REQUEST = PullRequest("7", "acme", limit=25_000)


@contextmanager
def serving(one: World, keep: float = 1.0) -> Iterator[ApiClient]:
    """Answers pulls of a world; only that part of each body."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = dict(parse_qsl(urlsplit(self.path).query))
            start = Position(one.snapshot_ts)
            if "cursor" in query:
                start = decode(Scope(one.tenant), query["cursor"])
            body = one.pull(start=start, limit=int(query["limit"]), form=query["format"])
            body = body[: int(len(body) * keep)]
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield ApiClient(f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def world() -> World:
    return golden_world("everything", tasks=2)


def expected(one: World) -> list[dict[str, Any]]:
    body = one.pull(start=Position(one.snapshot_ts), limit=25_000)
    return in_order(orjson.loads(line) for line in body.splitlines()[:-1])


def in_order(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """By what tells events from each other."""
    names = ("commit_ts", "start_ts", "type", "table_id", "op", "query", "key")
    return sorted(events, key=lambda event: [str(event.get(name)) for name in names])


def test_arrow_streams_of_all_pages_follow_each_other(world: World) -> None:
    out = io.BytesIO()
    with serving(world) as client:
        pull_pages(client, REQUEST, ToStream(out))
    told = [event for batch in arrow_batches(out.getvalue()) for _, event in events_of(batch)]
    assert sum(event["type"] in ("resolved", "continue") for event in told) > 1
    events = [event for event in told if event["type"] in ("row", "ddl")]
    assert in_order(events) == expected(world)


def test_parquet_files_of_all_pages_lie_in_the_directory(world: World, tmp_path: Path) -> None:
    with serving(world) as client:
        pull_pages(client, REQUEST, ToFiles(tmp_path / "out"))
    files = sorted((tmp_path / "out").glob("*.parquet"))
    assert len({path.name[:6] for path in files}) > 1
    told = [event for path in files for batch in pq.read_table(path).to_batches() for _, event in events_of(batch)]
    assert in_order(told) == expected(world)
    assert orjson.loads((tmp_path / "out" / "end.json").read_bytes())["resolved_ts"] == str(world.end_ts)


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.999])
def test_a_page_that_was_cut_is_not_kept(world: World, tmp_path: Path, keep: float) -> None:
    out = io.BytesIO()
    with serving(world, keep) as client:
        with pytest.raises(CliError, match="cut"):
            pull_pages(client, REQUEST, ToStream(out))
        with pytest.raises(CliError, match="cut"):
            pull_pages(client, REQUEST, ToFiles(tmp_path / "out"))
    assert out.getvalue() == b""
    assert list((tmp_path / "out").glob("*")) == []
