"""Answers to a pull, as the Python client and plain libraries read them over HTTP."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import polars as pl
import pyarrow as pa

from bench.inputs.mixed_rows import committed
from bench.inputs.pulled_pool import SNAPSHOT_TS, PulledPool
from tistream.decode import warm
from tistream.pool.writer import write_segment
from tistream.storage.backends.memory import MemoryObjectStore
from tistream_client import Table, TiStream

SEGMENT_ROWS = 262_144
CHUNK_BYTES = 1 << 18
LISTED = b'{"ts":"%d","databases":["bench"]}'
PATH = "/v1/clusters/7/tenants/bench/databases/bench/tables/mixed_0/changes"


class Serve:
    """A server that sends a recorded answer of the API to each request. Gives its port."""

    def __init__(self, rows: int, updates: float) -> None:
        warm()
        pool = committed(rows, SNAPSHOT_TS, updates=updates)
        objects, segments = MemoryObjectStore(), []
        for at in range(0, rows, SEGMENT_ROWS):
            body, ref = write_segment(pool.slice(at, SEGMENT_ROWS), f"segment-{at}")
            objects.put(ref.key, body)
            segments.append(ref)
        end_ts = int(pool.column("commit_ts")[-1].as_py())
        pulled = PulledPool(objects, segments, end_ts, 1, 1 << 30)
        answers = {
            form: b"".join(pulled.pull("bench", "mixed_0", form=form, events="rows")) for form in ("arrow", "ndjson")
        }

        told = self.told(end_ts)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                """Print nothing."""

            def do_GET(self) -> None:
                form = "arrow" if "format=arrow" in self.path else "ndjson"
                body = answers[form] if "/changes?" in self.path else told(self.path)
                self.send_response(200)
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                for at in range(0, len(body), CHUNK_BYTES):
                    piece = body[at : at + CHUNK_BYTES]
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                self.wfile.write(b"0\r\n\r\n")

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def told(self, end_ts: int) -> Callable[[str], bytes]:
        """The answer to a call that is no pull, by its path."""
        return lambda _: LISTED % end_ts

    def __call__(self) -> int:
        return self._server.server_port


def _table(port: int) -> Table:
    return TiStream(f"http://127.0.0.1:{port}").tenant("7", "bench").table("bench", "mixed_0")


class Batches:
    """Record batches of the client. Gives the number of rows."""

    def __init__(self, port: int) -> None:
        self._table = _table(port)

    def __call__(self) -> int:
        return sum(batch.num_rows for batch in self._table.changes().batches())


class ToPolars:
    """A DataFrame of the client. Gives the number of rows."""

    def __init__(self, port: int) -> None:
        self._table = _table(port)

    def __call__(self) -> int:
        return self._table.changes().to_polars().height


class EventsRead:
    """Typed events of the client. Gives their number."""

    def __init__(self, port: int) -> None:
        self._table = _table(port)

    def __call__(self) -> int:
        return sum(1 for _ in self._table.changes(events="rows"))


class Plain:
    """http.client, then pyarrow and Polars (`arrow`), or the json module line by line. Gives the number of rows."""

    def __init__(self, port: int, form: str) -> None:
        self._port, self._form = port, form

    def __call__(self) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        connection.request("GET", f"{PATH}?format={self._form}")
        body = connection.getresponse().read()
        connection.close()
        if self._form == "ndjson":
            return len([json.loads(line) for line in body.splitlines()]) - 1
        with pa.ipc.open_stream(pa.py_buffer(body)) as stream:
            frame = pl.from_arrow(stream.read_all())
        assert isinstance(frame, pl.DataFrame)
        return frame.height
