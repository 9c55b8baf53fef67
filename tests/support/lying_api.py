"""Pulls over HTTP as a broken platform would answer them: lawful events, told with one kind of lie.

Nothing of the product is in here: it stands for a system that `tistream verify` must not let pass.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from support.lawful_events import SNAPSHOT_TS, Event

Ask = dict[str, str]


@dataclass
class LyingApi:
    """`lie` is one of the names tested for below; "" tells the truth. Cursors are `ts.skip`."""

    events: list[Event]
    lie: str = ""
    end_ts: int = field(init=False)
    asked: int = 0
    of_kind: Counter[bool] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.end_ts = int(self.events[-1]["resolved_ts"])
        self.told = [event for event in self.events if event["type"] != "resolved"]

    def answer(self, scope: list[str], ask: Ask) -> tuple[int, list[Event]]:
        """Status and lines."""
        self.asked += 1
        if int(ask.get("start_ts", SNAPSHOT_TS)) < SNAPSHOT_TS:
            problem = {"type": "tistream:gone", "title": "Gone", "status": 410, "detail": "too old"}
            return 410, [{**problem, "earliest_ts": str(SNAPSHOT_TS)}]
        # Streams and pages are refused by turns of their own: else one of them may happen to be every time.
        self.of_kind["follow" in ask] += 1
        if (self.lie == "busy" and self.of_kind["follow" in ask] % 3 == 0) or self.lie == "refuses all":
            return 503, [{"type": "tistream:unavailable", "title": "Unavailable", "status": 503, "detail": "later"}]
        if self.lie == "broken" and self.asked == 9:
            return 500, [{"type": "tistream:internal", "title": "Internal", "status": 500, "detail": "oops"}]
        resumed = "cursor" in ask
        low_ts, skip = map(int, ask["cursor"].split(".")) if resumed else (int(ask["start_ts"]), 0)
        high_ts = int(ask.get("end_ts", self.end_ts))
        lines = [event for event in self.told if low_ts < int(event["commit_ts"]) <= high_ts and _covered(event, scope)]
        lines = lines[skip:]
        if "follow" in ask:
            return 200, self._follow(lines, resumed)
        return 200, self._page(lines, low_ts, skip, high_ts, int(ask["limit"]), scope)

    def _follow(self, lines: list[Event], resumed: bool) -> list[Event]:
        """The first answer is cut after a while; what it told behind its last cursor is told again by the next."""
        if not resumed:
            at = [n for n, event in enumerate(self.events) if event["type"] == "resolved"][3]
            before = [  # with cursors of ours: the reader may leave at any of them
                self._resolved(int(event["resolved_ts"])) if event["type"] == "resolved" else event
                for event in self.events[:at]
            ]
            return [
                *before,
                self._resolved(int(self.events[at]["resolved_ts"])),
                *self.events[at + 1 : at + 5],
            ]
        if self.lie == "resumes too late":
            lines = lines[1:]
        if self.lie == "loses one" and len(lines) > 60:
            lines = lines[:50] + lines[51:]
        if self.lie == "tells one twice" and len(lines) > 60:
            lines = [*lines[:50], lines[49], *lines[50:]]
        return [*lines, self._resolved(self.end_ts)]

    def _page(
        self, lines: list[Event], low_ts: int, skip: int, high_ts: int, limit: int, scope: list[str]
    ) -> list[Event]:
        limit = min(limit, 50)
        if self.lie == "another order when resumed" and skip:
            lines = lines[::-1]
        if self.lie == "tables leave one out" and scope:
            lines = lines[1:]
        if self.lie == "no last line" and self.asked % 5 == 0:
            return lines[:limit]
        if len(lines) <= limit:
            return [*lines, self._resolved(high_ts)]
        return [*lines[:limit], {"type": "continue", "cursor": f"{low_ts}.{skip + limit}"}]

    def _resolved(self, ts: int) -> Event:
        return {"type": "resolved", "resolved_ts": str(ts), "cursor": f"{ts}.0"}


def _covered(event: Event, scope: list[str]) -> bool:
    names = [event, *event.get("involved", [])]
    return not scope or any(
        name["database"] == scope[0] and (len(scope) == 1 or name["table"] == scope[1]) for name in names
    )


@contextmanager
def served(api: LyingApi) -> Iterator[str]:
    """The API's URL while it answers."""
    stop = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            parts = [unquote(part) for part in url.path.strip("/").split("/")][5:-1]
            ask: Ask = {name: values[0] for name, values in parse_qs(url.query).items()}
            status, lines = api.answer(parts[1::2], ask)
            self.send_response(status)
            self.end_headers()
            self._tell(lines)
            while "cursor" in ask and "follow" in ask and not stop.is_set():
                self._tell(lines[-1:])
                time.sleep(0.1)

        def _tell(self, lines: list[dict[str, Any]]) -> None:
            try:
                self.wfile.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
            except OSError:
                stop.wait(0)  # the consumer has left

        def log_message(self, *_: Any) -> None:
            """Not on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        stop.set()
        server.shutdown()
        server.server_close()
