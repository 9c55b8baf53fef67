"""A table's changes in Spark with `direct=true`: a server that is API and bucket, and the work of an API server."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from bench.contenders.client import LISTED, SEGMENT_ROWS
from bench.inputs.changes import TENANT
from bench.inputs.mixed_rows import TABLE_ID, committed
from bench.inputs.pulled_pool import SNAPSHOT_TS, PulledPool, source_of
from tistream.decode import warm
from tistream.format.segment import SegmentRef
from tistream.model.ts import Window
from tistream.pool.writer import write_segment
from tistream.read.cursor import Scope
from tistream.storage.backends.memory import MemoryObjectStore
from tistream.wire.schema_views import column_views
from tistream_api.signed.signed_answer import SignedAnswers, Signing
from tistream_api.signed.stretch import StretchLimits

SCOPE = Scope(TENANT, "bench", "mixed_0")
_RANGE = re.compile(r"bytes=([0-9]+)-([0-9]+)")


class Pool:
    """A pool of this many rows of one table, and its answers of SignedChanges. `url` is that of the bucket."""

    def __init__(self, rows: int, url: str = "memory:") -> None:
        self.objects = MemoryObjectStore()
        self.segments: list[SegmentRef] = []
        pool = committed(rows, SNAPSHOT_TS)
        for at in range(0, rows, SEGMENT_ROWS):
            body, ref = write_segment(pool.slice(at, SEGMENT_ROWS), f"segment-{at}")
            self.objects.put(ref.key, bytes(body))
            self.segments.append(ref)
        self.end_ts = int(pool.column("commit_ts")[-1].as_py())
        self.source = source_of(self.objects, self.segments, self.end_ts, 1, 1 << 20)
        self._signing = Signing(lambda key, *_: f"{url}/bucket/{key}", 300)

    def answer(self, low: int) -> str:
        """The answer from `low` on."""
        answers = SignedAnswers(self.objects, self._signing)  # of a server that has read no footer yet
        window = Window(low, self.end_ts)
        return answers.answer(self.source, SCOPE, window, self.end_ts, StretchLimits()).model_dump_json()


class ServeDirect:
    """A server that is API and bucket. Gives its port."""

    def __init__(self, rows: int) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
        pool = Pool(rows, f"http://127.0.0.1:{self._server.server_port}")
        told = _told(pool)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                """Print nothing."""

            def do_GET(self) -> None:
                found = _RANGE.fullmatch(self.headers.get("range", ""))
                if found is None:
                    self._send(200, told(self.path))
                    return
                first, last = int(found[1]), int(found[2])
                key = self.path.removeprefix("/bucket/")
                self._send(206, pool.objects.get_range(key, first, last - first + 1))

            def _send(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server.RequestHandlerClass = Handler
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __call__(self) -> int:
        return self._server.server_port


def _told(pool: Pool) -> Callable[[str], bytes]:
    """The answer to a call of the API, by its path."""
    version = pool.source.table(pool.end_ts, "bench", "mixed_0")
    assert version is not None
    columns = [one.model_dump() for one in column_views(version.table)]
    head = {"ts": str(pool.end_ts), "table_id": str(TABLE_ID), "kind": "table", "schema_version": "0"}
    part = {"start_ts": str(SNAPSHOT_TS), "end_ts": str(pool.end_ts), "rows": 1}

    def answer(path: str) -> bytes:
        if "/changes/signed" in path:
            return pool.answer(int(parse_qs(urlsplit(path).query)["start_ts"][0])).encode()
        if "/changes/parts" in path:
            return json.dumps({"parts": [part]}).encode()
        return json.dumps(head | {"columns": columns}).encode() if "/schema" in path else LISTED % pool.end_ts

    return answer


class Signs:
    """What an API server does for a direct read of all rows. Gives the number of answers."""

    def __init__(self, rows: int) -> None:
        self._pool = Pool(rows)

    def __call__(self) -> int:
        low, answers = SNAPSHOT_TS, 0
        while low < self._pool.end_ts:
            low, answers = int(json.loads(self._pool.answer(low))["end_ts"]), answers + 1
        return answers


class Pulls:
    """What an API server does for a pull of all rows as Arrow. Gives the number of bytes."""

    def __init__(self, rows: int) -> None:
        warm()
        self._pool = Pool(rows)

    def __call__(self) -> int:
        pool = self._pool
        pulled = PulledPool(pool.objects, pool.segments, pool.end_ts, 1, 1 << 20)
        return sum(len(piece) for piece in pulled.pull("bench", "mixed_0", form="arrow", events="rows"))
