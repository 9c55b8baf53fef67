"""`tistream pull --format arrow|parquet` against real answers: every event, once, and nothing of a cut page."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.arrow_answer import arrow_batches, events_of, stream_end
from support.pull_world import World, golden_world
from tistream.read.cursor import Position, Scope, decode
from tistream_client.cli.api_client import ApiClient
from tistream_client.cli.errors import CliError
from tistream_client.cli.pull.directory import ToFiles
from tistream_client.cli.pull.format import PullRequest
from tistream_client.cli.pull.pages import pull_pages
from tistream_client.cli.pull.progress import Bar
from tistream_client.cli.pull.streams import ToOneStream, ToStream

REQUEST = PullRequest("7", "acme", limit=25_000)


@contextmanager
def serving(one: World, keep: float = 1.0) -> Iterator[ApiClient]:
    """Answers pulls of a world; only that part of each body."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            names, query = [unquote(name) for name in asked.path.split("/")[7:-1:2]], dict(parse_qsl(asked.query))
            start = Position(one.snapshot_ts)
            if "cursor" in query:
                start = decode(Scope(one.tenant, *names), query["cursor"])
            events = query.get("events", "all")
            body = one.pull(*names, start=start, limit=int(query["limit"]), form=query["format"], events=events)
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
        pull_pages(client, REQUEST, ToStream(out), Bar(None, None))
    told = [event for batch in arrow_batches(out.getvalue()) for _, event in events_of(batch)]
    assert sum(event["type"] in ("resolved", "continue") for event in told) > 1
    events = [event for event in told if event["type"] in ("row", "ddl")]
    assert in_order(events) == expected(world)


def one_stream(client: ApiClient, cursor: str | None) -> tuple[bytes, str | None]:
    """What a pull of shop.busy's rows from there writes, and what it fails with at its end."""
    out = io.BytesIO()
    try:
        pull_pages(
            client,
            PullRequest("7", "acme", "shop", "busy", cursor=cursor, events="rows"),
            ToOneStream(out),
            Bar(None, None),
        )
    except CliError as error:
        return out.getvalue(), str(error)
    return out.getvalue(), None


def test_rows_of_one_table_are_one_stream_up_to_where_its_schema_changes(world: World) -> None:
    every = [orjson.loads(line) for line in world.pull("shop", "busy", start=Position(world.snapshot_ts)).splitlines()]
    bodies, failures = [], []
    with serving(world) as client:
        while len(bodies) < 100 and (not failures or failures[-1] is not None):
            cursor = stream_end(bodies[-1], "arrow")["cursor"] if bodies else None
            body, failed = one_stream(client, cursor)
            bodies.append(body)
            failures.append(failed)
    assert len(bodies) > 1
    for body, failed in zip(bodies[:-1], failures[:-1], strict=True):
        assert failed is not None
        assert "schema changes" in failed
        assert f"--cursor {stream_end(body, 'arrow')['cursor']}" in failed
    assert sum(pa.ipc.open_stream(body).read_all().num_rows for body in bodies) == len(every) - sum(
        event["type"] != "row" for event in every
    )
    told = [event for body in bodies for batch in arrow_batches(body) for _, event in events_of(batch)]
    assert told == [event for event in every if event["type"] == "row"]


def told_in(directory: Path) -> list[dict[str, Any]]:
    """Every event of a directory's files, in the order of what tells events from each other."""
    files = directory.glob("*/*.parquet")
    return in_order(
        event for path in files for batch in pq.ParquetFile(path).read().to_batches() for _, event in events_of(batch)
    )


def test_parquet_files_of_all_pages_lie_in_a_directory_of_their_table(world: World, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with serving(world) as client:
        pull_pages(client, REQUEST, ToFiles(out, REQUEST), Bar(None, None))
    assert len({path.name[:6] for path in out.glob("*/*.parquet")}) > 1
    assert told_in(out) == expected(world)
    assert orjson.loads((out / "end.json").read_bytes())["resolved_ts"] == str(world.end_ts)
    assert {path.name for path in out.iterdir()} >= {"shop.orders", "ddl", "end.json"}
    for path in out.glob("shop.orders/*.parquet"):
        assert pq.read_schema(path).metadata[b"tistream.table"] == b"orders"


def test_a_second_pull_into_a_directory_goes_on_where_the_first_one_ended(world: World, tmp_path: Path) -> None:
    out, some = tmp_path / "out", PullRequest("7", "acme", limit=500)
    with serving(world) as client:
        pull_pages(client, some, ToFiles(out, some), Bar(None, None))
        before = told_in(out)
        pull_pages(client, some, ToFiles(out, some), Bar(None, None))
        again = told_in(out)
        pull_pages(client, REQUEST, ToFiles(out, REQUEST), Bar(None, None))
    assert 0 < len(before) < len(again)
    assert told_in(out) == expected(world)


def test_what_a_pull_that_died_left_of_its_last_page_is_not_read_twice(world: World, tmp_path: Path) -> None:
    out, some = tmp_path / "out", PullRequest("7", "acme", limit=500)
    with serving(world) as client:
        pull_pages(client, some, ToFiles(out, some), Bar(None, None))
        page = orjson.loads((out / "end.json").read_bytes())["page"]
        whole = next(out.glob("shop.*/*.parquet"))
        (whole.parent / f"{page + 1:06d}-000009.parquet").write_bytes(whole.read_bytes())
        pull_pages(client, REQUEST, ToFiles(out, REQUEST), Bar(None, None))
    assert told_in(out) == expected(world)


@pytest.mark.parametrize(
    "other",
    [
        PullRequest("7", "acme", start_ts="1"),
        PullRequest("7", "acme", cursor="c"),
        PullRequest("7", "acme", events="rows"),
        PullRequest("7", "other"),
    ],
)
def test_another_pull_into_the_same_directory_is_refused(world: World, tmp_path: Path, other: PullRequest) -> None:
    some = PullRequest("7", "acme", limit=500)
    with serving(world) as client:
        pull_pages(client, some, ToFiles(tmp_path, some), Bar(None, None))
    with pytest.raises(CliError, match=r"end\.json"):
        ToFiles(tmp_path, other)


def test_files_of_somebody_else_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(CliError, match="empty"):
        ToFiles(tmp_path, REQUEST)


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.999])
def test_a_page_that_was_cut_is_not_kept(world: World, tmp_path: Path, keep: float) -> None:
    out = io.BytesIO()
    with serving(world, keep) as client:
        with pytest.raises(CliError, match="truncated"):
            pull_pages(client, REQUEST, ToStream(out), Bar(None, None))
        with pytest.raises(CliError, match="truncated"):
            pull_pages(client, REQUEST, ToFiles(tmp_path / "out", REQUEST), Bar(None, None))
    assert out.getvalue() == b""
    assert [path.name for path in (tmp_path / "out").glob("*")] == ["end.json"], "which has where it begins"
